// The elements with the largest errors: the list that one sweep keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ops_debug::analysis {

struct WorstElement {
  double error = 0;
  int64_t position = 0;  // in row-major order; of equal errors the first ones are kept
};

class WorstElements {
 public:
  explicit WorstElements(size_t most) : most_(std::max<size_t>(most, 1)) {}

  // What an error must exceed; elements must come in order of position.
  double threshold() const { return kept_.size() < most_ ? 0 : kept_.back().error; }
  void Add(double error, int64_t position) {
    if (!(error > threshold())) return;
    Insert({error, position});
  }
  // In order of position; what is left of `elements` is of no use.
  void AddAll(std::vector<WorstElement>* elements) {
    if (elements->size() > 4 * most_) {  // an error that grows along the way: only its end can stay
      const auto end = elements->begin() + static_cast<int64_t>(most_);
      std::nth_element(elements->begin(), end, elements->end(), IsBefore);
      elements->erase(end, elements->end());
      std::sort(
          elements->begin(), elements->end(),
          [](const WorstElement& a, const WorstElement& b) { return a.position < b.position; });
    }
    for (const WorstElement& element : *elements) Add(element.error, element.position);
  }
  void Merge(const WorstElements& later) {
    for (const WorstElement& element : later.kept_) Insert(element);
  }
  const std::vector<WorstElement>& kept() const { return kept_; }

 private:
  static bool IsBefore(const WorstElement& a, const WorstElement& b) {
    return a.error > b.error || (a.error == b.error && a.position < b.position);
  }
  void Insert(const WorstElement& element) {
    kept_.insert(std::upper_bound(kept_.begin(), kept_.end(), element, IsBefore), element);
    if (kept_.size() > most_) kept_.pop_back();
  }

  size_t most_;
  std::vector<WorstElement> kept_;  // worst first
};

}  // namespace ops_debug::analysis
