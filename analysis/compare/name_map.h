// The user's file that says which tensor of the candidate is which of the reference, where names
// were changed.
//
//   # a comment
//   encoder.conv_in: enc.conv0
//   module\.(.*): \1            a regular expression of the whole name; groups as \1 to \9
//   "odd: name": 'other name'   quoted where a name holds ": " or begins with # or a quote
#pragma once

#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ops_debug::analysis {

class NameMap {
 public:
  // Errors name file and line.
  static absl::StatusOr<NameMap> Read(const std::string& path);
  static absl::StatusOr<NameMap> Parse(const std::string& text, const std::string& path);

  // What the map calls a candidate's tensor in the reference. A rule that spells the name comes
  // before every regular expression and holds whatever the reference has; a regular expression fits
  // only if what it makes of the name `exists`. Nothing: no rule fits.
  std::optional<std::string> ReferenceOf(
      const std::string& candidate, const std::function<bool(const std::string&)>& exists) const;

  // Rules that have fitted no name so far, as they stand in the file: misspelt, probably.
  std::vector<std::string> UnusedRules() const;

 private:
  struct Rule {
    std::string candidate, reference;
    std::optional<std::regex> pattern;  // of a rule with signs of a regular expression
    mutable bool used = false;
  };
  absl::Status AddRule(const std::string& line);

  std::vector<Rule> rules_;
};

}  // namespace ops_debug::analysis
