#include "analysis/compare/alignment.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "proto/natural_order.h"

namespace ops_debug::analysis {
namespace {

using proto::Tensor;
using proto::TensorSet;

// "conv#3": call 3 of "conv"; "conv#3/out": of "conv/out". A name without an index is a call before
// all others.
struct CallName {
  std::string base;
  int64_t call = -1;
};

CallName SplitCall(const std::string& name) {
  const size_t sign = name.rfind('#');
  if (sign == std::string::npos || sign == 0) return {name};
  int64_t call = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + sign + 1, end, call);
  if (error != std::errc() || call < 0 || (stop != end && *stop != '/')) return {name};
  return {name.substr(0, name[sign - 1] == ' ' ? sign - 1 : sign) + stop, call};
}

std::vector<const Tensor*> InOrderOfExecution(const TensorSet& set) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : set.tensors) order.push_back(&tensor);
  const bool is_alphabet =
      std::is_sorted(order.begin(), order.end(),
                     [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  if (is_alphabet) {
    std::stable_sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
      return proto::NaturallyBefore(a->name, b->name);
    });
  }
  return order;
}

class Aligner {
 public:
  Aligner(const TensorSet& candidate, const TensorSet& reference, const NameMap* map)
      : map_(map),
        candidates_(InOrderOfExecution(candidate)),
        references_(InOrderOfExecution(reference)),
        partner_(candidates_.size(), kNone),
        taken_(references_.size(), false) {
    for (size_t i = 0; i < references_.size(); ++i) by_name_[references_[i]->name] = i;
  }

  Alignment Run() {
    if (candidates_.size() == 1 && references_.size() == 1 && map_ == nullptr) {
      Pair(0, 0);
    } else {
      PairByName();
      PairByCall();
    }
    Alignment alignment;
    if (map_ != nullptr) AddMapRemarks(&alignment);
    if (const std::string hint = PrefixHint(); !hint.empty()) alignment.remarks.push_back(hint);
    AddPairs(&alignment);
    return alignment;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  void Pair(size_t candidate, size_t reference) {
    partner_[candidate] = reference;
    taken_[reference] = true;
  }

  // The map's word first: a renamed tensor's old name may be in use for another one.
  void PairByName() {
    if (map_ != nullptr) {
      const auto exists = [&](const std::string& name) { return by_name_.count(name) != 0; };
      for (size_t i = 0; i < candidates_.size(); ++i) {
        const std::optional<std::string> name = map_->ReferenceOf(candidates_[i]->name, exists);
        if (!name) continue;
        mapped_.push_back(i);
        const auto found = by_name_.find(*name);
        if (found != by_name_.end() && !taken_[found->second]) {
          Pair(i, found->second);
        } else {
          map_misses_.push_back(absl::StrCat(
              "--map: \"", candidates_[i]->name, "\" is \"", *name, "\", which the reference ",
              found == by_name_.end() ? "does not have" : "has, but paired with another tensor"));
        }
      }
    }
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (partner_[i] != kNone || std::binary_search(mapped_.begin(), mapped_.end(), i)) continue;
      const auto found = by_name_.find(candidates_[i]->name);
      if (found != by_name_.end() && !taken_[found->second]) Pair(i, found->second);
    }
  }

  // Names of which no call has found its partner are counted differently on the two sides: the
  // first call is the first call.
  void PairByCall() {
    struct Calls {
      std::vector<std::pair<int64_t, size_t>> candidates, references;  // call, position
      bool is_paired = false;
    };
    std::map<std::string, Calls> calls;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const CallName name = SplitCall(candidates_[i]->name);
      if (partner_[i] != kNone) {
        calls[name.base].is_paired = true;
      } else if (!std::binary_search(mapped_.begin(), mapped_.end(), i)) {
        calls[name.base].candidates.emplace_back(name.call, i);
      }
    }
    for (size_t i = 0; i < references_.size(); ++i) {
      const CallName name = SplitCall(references_[i]->name);
      if (!taken_[i]) calls[name.base].references.emplace_back(name.call, i);
    }
    for (auto& [base, of_name] : calls) {
      // Where some calls have partners the indices mean the same on both sides: the others are
      // missing.
      if (of_name.is_paired) continue;
      std::sort(of_name.candidates.begin(), of_name.candidates.end());
      std::sort(of_name.references.begin(), of_name.references.end());
      const size_t count = std::min(of_name.candidates.size(), of_name.references.size());
      for (size_t i = 0; i < count; ++i) {
        Pair(of_name.candidates[i].second, of_name.references[i].second);
      }
    }
  }

  void AddMapRemarks(Alignment* alignment) const {
    alignment->remarks.insert(alignment->remarks.end(), map_misses_.begin(), map_misses_.end());
    for (const std::string& rule : map_->UnusedRules()) {
      alignment->remarks.push_back(
          absl::StrCat("--map: \"", rule, "\" fits no tensor of the candidate"));
    }
  }

  // If names without partners would have one but for a word in front ("module."), the rule for
  // --map that says so.
  std::string PrefixHint() const {
    std::unordered_set<std::string_view> lonely_references, lonely_candidates;
    for (size_t i = 0; i < references_.size(); ++i) {
      if (!taken_[i]) lonely_references.insert(references_[i]->name);
    }
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (partner_[i] == kNone) lonely_candidates.insert(candidates_[i]->name);
    }
    const auto [in_front, count] = CommonPrefix(lonely_candidates, lonely_references);
    if (count != 0) {
      return absl::StrCat(count, " names are the reference's behind \"", in_front,
                          "\"; put this line into a file for --map: ", Escaped(in_front),
                          "(.*): \\1");
    }
    const auto [missing, others] = CommonPrefix(lonely_references, lonely_candidates);
    if (others != 0) {
      return absl::StrCat(others, " names are the reference's without \"", missing,
                          "\" in front; put this line into a file for --map: (.*): ", missing,
                          "\\1");
    }
    return "";
  }

  // The word whose removal from the front of `longer` names gives the most `shorter` ones; at a dot
  // or slash.
  static std::pair<std::string, size_t> CommonPrefix(
      const std::unordered_set<std::string_view>& longer,
      const std::unordered_set<std::string_view>& shorter) {
    std::map<std::string, size_t> counts;
    for (const std::string_view name : longer) {
      for (size_t at = name.find_first_of("./"); at != std::string_view::npos && !shorter.empty();
           at = name.find_first_of("./", at + 1)) {
        if (shorter.count(name.substr(at + 1)) != 0) ++counts[std::string(name.substr(0, at + 1))];
      }
    }
    std::pair<std::string, size_t> most{"", 0};
    for (const auto& [prefix, count] : counts) {
      if (count > most.second) most = {prefix, count};
    }
    return most;
  }

  static std::string Escaped(const std::string& text) {
    std::string pattern;
    for (const char c : text) {
      if (std::string_view("\\()[]{}*+?|^$.").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
    return pattern;
  }

  // The candidate's order; what the reference alone has, behind its predecessor in the reference.
  void AddPairs(Alignment* alignment) const {
    std::vector<std::vector<size_t>> behind(candidates_.size() + 1);  // [0]: before all
    std::vector<size_t> candidate_of(references_.size(), kNone);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (partner_[i] != kNone) candidate_of[partner_[i]] = i;
    }
    size_t anchor = 0;
    for (size_t i = 0; i < references_.size(); ++i) {
      if (candidate_of[i] != kNone) {
        anchor = candidate_of[i] + 1;
      } else {
        behind[anchor].push_back(i);
      }
    }
    for (size_t i = 0; i <= candidates_.size(); ++i) {
      if (i != 0) {
        const Tensor* candidate = candidates_[i - 1];
        const size_t partner = partner_[i - 1];
        alignment->pairs.push_back(
            {candidate->name, candidate, partner == kNone ? nullptr : references_[partner]});
      }
      for (const size_t reference : behind[i]) {
        alignment->pairs.push_back({references_[reference]->name, nullptr, references_[reference]});
      }
    }
  }

  const NameMap* map_;
  std::vector<const Tensor*> candidates_, references_;
  std::vector<size_t> partner_;  // of each candidate
  std::vector<bool> taken_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::vector<size_t> mapped_;  // candidates that the map speaks of, in order
  std::vector<std::string> map_misses_;
};

}  // namespace

Alignment Align(const TensorSet& candidate, const TensorSet& reference, const NameMap* map) {
  return Aligner(candidate, reference, map).Run();
}

}  // namespace ops_debug::analysis
