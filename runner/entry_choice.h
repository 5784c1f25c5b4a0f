// Which kernel of a module the user means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/signature.h"

namespace ops_debug::runner {

// `wanted`: the mangled name, the demangled name, the plain name, or a part of the demangled name
// that only one entry has; empty if the module has one entry only. `file` is for messages, which
// list the entries.
absl::StatusOr<Entry> ChooseEntry(const std::vector<Entry>& entries, std::string_view wanted,
                                  std::string_view file);

}  // namespace ops_debug::runner
