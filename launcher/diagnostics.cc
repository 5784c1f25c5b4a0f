// Error text, and "did you mean" by edit distance with transpositions (Damerau, CACM 1964; optimal
// string alignment).
#include "launcher/diagnostics.h"

#include <algorithm>
#include <iostream>

namespace ops_debug::launcher {
namespace {

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

int Tell(const Problem& problem) {
  std::cerr << "ops-debug: error: " << problem.text << '\n';
  if (!problem.hint.empty()) std::cerr << "  hint: " << problem.hint << '\n';
  return problem.exit_code;
}

std::optional<std::string> Nearest(const std::string& word,
                                   const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 64;
  if (word.empty() || word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    // "memory" for "check-memory": what was typed is part of the name.
    const bool part = word.size() >= 4 && candidate.find(word) != std::string::npos;
    const size_t distance = part ? 1 : EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace ops_debug::launcher
