// The filter of the session and its one decision (launch_filter.h).
#include "interposer/launch_filter.h"

#include <cxxabi.h>

#include <cstdlib>
#include <optional>
#include <regex>
#include <utility>

#include "interposer/event_sender.h"
#include "interposer/session.h"
#include "proto/kernel_name_pattern.h"

namespace ops_debug::interposer {
namespace {

std::string Demangled(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string out = text ? text : mangled;
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): that is how __cxa_demangle returns it
  return out;
}

// Only launches of kernels that were never met come here, so compiling the pattern anew costs
// little, and no state is shared.
bool NameMatches(const std::string& pattern, const std::string& mangled_name) {
  const std::optional<std::regex> compiled = proto::CompileKernelNamePattern(pattern, nullptr);
  if (!compiled) {
    // The launcher refuses such a pattern; whoever set the variable by hand hears of it here.
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "OPS_DEBUG_KERNEL_NAME is no regular expression: " + pattern,
                             .hint = "all kernels are checked"});
    return true;
  }
  return std::regex_search(mangled_name, *compiled) ||
         std::regex_search(Demangled(mangled_name), *compiled);
}

const LaunchFilter& SessionFilter() {
  static const auto* filter = [] {
    const SessionOptions& options = Options();
    return new LaunchFilter({.name_pattern = options.kernel_name_pattern,
                             .skip = options.launch_skip,
                             .count = options.launch_count,
                             .sample = options.sample});
  }();
  return *filter;
}

}  // namespace

LaunchFilter::LaunchFilter(LaunchSelection selection)
    : selection_(std::move(selection)),
      open_(selection_.name_pattern.empty() && selection_.skip == 0 &&
            selection_.count == UINT64_MAX && selection_.sample == 1),
      other_name_("left out by --kernel-name " + selection_.name_pattern),
      skipped_("left out by --launch-skip " + std::to_string(selection_.skip)),
      past_count_("left out by --launch-count " + std::to_string(selection_.count)),
      sampled_out_("left out by --sample 1/" + std::to_string(selection_.sample)) {}

bool LaunchFilter::IsSelected(KernelFilter& kernel, const std::string& mangled_name) const {
  using Selected = KernelFilter::Selected;
  if (selection_.name_pattern.empty()) return true;
  Selected selected = kernel.selected.load(std::memory_order_relaxed);
  if (selected == Selected::kNotAsked) {
    // Two threads may both ask; they get the same answer.
    selected = NameMatches(selection_.name_pattern, mangled_name) ? Selected::kYes : Selected::kNo;
    kernel.selected.store(selected, std::memory_order_relaxed);
  }
  return selected == Selected::kYes;
}

const char* LaunchFilter::DecideSlowly(KernelFilter& kernel,
                                       const std::string& mangled_name) const {
  if (!IsSelected(kernel, mangled_name)) return other_name_.c_str();
  const uint64_t launch = kernel.launches.fetch_add(1, std::memory_order_relaxed);
  if (launch < selection_.skip) return skipped_.c_str();
  const uint64_t after = launch - selection_.skip;
  if (after / selection_.sample >= selection_.count) return past_count_.c_str();
  return after % selection_.sample == 0 ? nullptr : sampled_out_.c_str();
}

const char* FilterLaunch(KernelFilter& kernel, const std::string& mangled_name) {
  static const LaunchFilter& filter = SessionFilter();
  return filter.Decide(kernel, mangled_name);
}

}  // namespace ops_debug::interposer
