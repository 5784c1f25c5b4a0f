// Which launches the user wants checked: --kernel-name, --launch-skip, --launch-count, --sample.
// Launches that are left out run the original kernel and count as not checked, with the reason.
//
// Order: name, then skip, then sample, then count: of a kernel's launches after the first `skip`,
// one in `sample` is checked, the first of them included, until `count` were.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace ops_debug::interposer {

// State of one kernel; a member of its record. As it is made, it is right.
struct KernelFilter {
  enum class Selected : uint8_t { kNotAsked, kYes, kNo };
  std::atomic<Selected> selected{Selected::kNotAsked};  // by its name, asked once
  std::atomic<uint64_t> launches{0};                    // that this filter was asked about
};

// What a user asked for (session.h).
struct LaunchSelection {
  std::string name_pattern;  // empty: every name
  uint64_t skip = 0;
  uint64_t count = UINT64_MAX;
  uint64_t sample = 1;
};

class LaunchFilter {
 public:
  explicit LaunchFilter(LaunchSelection selection);

  // Decides about the next launch of a kernel. Null: check it. Else the reason why not, which lives
  // as long as the filter. Any thread.
  const char* Decide(KernelFilter& kernel, const std::string& mangled_name) const {
    return open_ ? nullptr : DecideSlowly(kernel, mangled_name);
  }

 private:
  const char* DecideSlowly(KernelFilter& kernel, const std::string& mangled_name) const;
  bool IsSelected(KernelFilter& kernel, const std::string& mangled_name) const;

  const LaunchSelection selection_;
  const bool open_;                                                    // lets everything through
  const std::string other_name_, skipped_, past_count_, sampled_out_;  // reasons
};

// The same with the session's filter; its reasons live as long as the process.
const char* FilterLaunch(KernelFilter& kernel, const std::string& mangled_name);

}  // namespace ops_debug::interposer
