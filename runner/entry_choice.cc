// Matches the user's word against the entries' names, the most exact kind of match first, and lists
// the candidates if none or several fit.
#include "runner/entry_choice.h"

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

std::string Listed(const std::vector<Entry>& entries) {
  std::string list;
  for (const Entry& entry : entries) StrAppend(&list, "\n    ", entry.demangled);
  return list;
}

}  // namespace

absl::StatusOr<Entry> ChooseEntry(const std::vector<Entry>& entries, std::string_view wanted,
                                  std::string_view file) {
  if (entries.empty()) {
    return absl::InvalidArgumentError(StrCat(file,
                                             " has no kernel\n  hint: it needs a __global__ "
                                             "function, and a template an explicit instantiation"));
  }
  if (wanted.empty()) {
    if (entries.size() == 1) return entries[0];
    return absl::InvalidArgumentError(StrCat(file, " has ", entries.size(),
                                             " kernels:", Listed(entries),
                                             "\n  hint: choose one: --entry ", entries[0].name));
  }
  // The most exact kind of match that any entry has decides.
  std::vector<Entry> matches;
  for (int kind = 0; kind < 4 && matches.empty(); ++kind) {
    for (const Entry& entry : entries) {
      const bool match = kind == 0   ? entry.mangled == wanted
                         : kind == 1 ? entry.demangled == wanted
                         : kind == 2 ? entry.name == wanted
                                     : entry.demangled.find(wanted) != std::string::npos;
      if (match) matches.push_back(entry);
    }
  }
  if (matches.size() == 1) return matches[0];
  if (matches.empty()) {
    return absl::InvalidArgumentError(
        StrCat("--entry ", wanted, ": ", file, " has no such kernel; it has:", Listed(entries),
               "\n  hint: --entry takes a name, a signature, or a part that only one kernel has"));
  }
  return absl::InvalidArgumentError(StrCat("--entry ", wanted, " fits ", matches.size(),
                                           " kernels of ", file, ":", Listed(matches),
                                           "\n  hint: give more of the name"));
}

}  // namespace ops_debug::runner
