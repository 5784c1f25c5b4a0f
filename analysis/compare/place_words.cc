#include "analysis/compare/place_words.h"

#include <string>
#include <vector>

#include "analysis/compare/found_pattern.h"

namespace ops_debug::analysis {
namespace {

std::string PowersText(const std::vector<int64_t>& tiles) {
  std::string text;
  for (size_t i = 0; i < tiles.size(); ++i) {
    text += (i == 0 ? "" : " or ") + std::to_string(tiles[i]);
  }
  return text;
}

std::string Span(int64_t begin, int64_t end) {
  return end - begin == 1 ? std::to_string(begin)
                          : std::to_string(begin) + " to " + std::to_string(end - 1);
}

bool MultipleOf(int64_t value, int64_t divisor) { return value % divisor == 0; }

// Tiles whose last, partial one begins at `begin`.
std::vector<int64_t> TilesThatEndPartial(int64_t begin, int64_t size) {
  std::vector<int64_t> tiles;
  for (int64_t tile = 4; tile <= 1024; tile *= 2) {
    if (begin > 0 && begin % tile == 0 && size - begin < tile) tiles.push_back(tile);
  }
  return tiles;
}

}  // namespace

// Neighbouring threads usually take neighbouring elements of the innermost axis.
PatternHint NamePeriod(const Period& found, int axis, bool innermost) {
  PatternHint hint;
  const int64_t period = found.period, begin = found.offset, width = found.width;
  const std::string of = " of " + AxisText(axis);
  if (innermost && period == 32 && begin + width <= 32) {
    hint.kind = "warp-lanes";
    hint.text = (width == 1 ? "lane " : "lanes ") + Span(begin, begin + width) +
                " of each 32 indices" + of + ": the same lanes of each warp";
  } else if (innermost && period > 32 && MultipleOf(period, 32) && MultipleOf(begin, 32) &&
             MultipleOf(width, 32) && begin + width <= period) {
    hint.kind = "warp-lanes";
    hint.text = (width == 32 ? "warp " : "warps ") + Span(begin / 32, (begin + width) / 32) +
                " of each " + std::to_string(period / 32) + " (" + std::to_string(width) +
                " indices from " + std::to_string(begin) + " of each " + std::to_string(period) +
                ")" + of;
  } else if (period >= 8 && MultipleOf(period, 8) && 4 * width <= period &&
             (begin == 0 || begin + width >= period)) {
    hint.kind = "tile-edge";
    const std::string tiles = " of each tile of " + std::to_string(period) + of;
    if (begin == 0) {
      hint.text = "the first " + (width == 1 ? "index" : std::to_string(width)) + tiles;
    } else if (begin + width == period) {
      hint.text = "the last " + (width == 1 ? "index" : std::to_string(width)) + tiles;
    } else {
      hint.text = "the last " + std::to_string(period - begin) + " and the first " +
                  std::to_string(begin + width - period) + tiles;
    }
  } else {
    hint.kind = "periodic";
    const auto ordinal = [](int64_t k) {
      const bool teen = k / 10 % 10 == 1;
      const char* ending = teen || k % 10 > 3 || k % 10 == 0 ? "th"
                           : k % 10 == 1                     ? "st"
                           : k % 10 == 2                     ? "nd"
                                                             : "rd";
      return std::to_string(k) + ending;
    };
    hint.text = width == 1
                    ? "every " + ordinal(period) + " index" + of + " from " + std::to_string(begin)
                    : std::to_string(width) + " of every " + std::to_string(period) + " indices" +
                          of + " from " + std::to_string(begin);
  }
  return hint;
}

PatternHint NameRange(const Range& range, int of_axis, int64_t size, bool innermost) {
  PatternHint hint;
  const std::string axis = AxisText(of_axis);
  const int64_t begin = range.begin, end = range.end;
  const std::vector<int64_t> tiles = end == size && 2 * (size - begin) <= size
                                         ? TilesThatEndPartial(begin, size)
                                         : std::vector<int64_t>{};
  if (range.indices == std::vector<int64_t>{0, size - 1}) {
    hint.kind = "border";
    hint.text = "the first and the last index of " + axis + " are wrong";
  } else if (!range.indices.empty()) {
    hint.kind = "channel";
    hint.text = "indices ";
    for (size_t i = 0; i < range.indices.size(); ++i) {
      hint.text += i == 0 ? "" : i + 1 == range.indices.size() ? " and " : ", ";
      hint.text += std::to_string(range.indices[i]);
    }
    hint.text += " of " + axis + " are wrong";
  } else if (!tiles.empty()) {
    hint.kind = "last-tile";
    const int64_t wrong = size - begin;
    hint.text = (wrong == 1 ? "the last index of " : "the last " + std::to_string(wrong) + " of ") +
                axis + " (" + Span(begin, end) + "): what is left behind full tiles of " +
                PowersText(tiles);
  } else if (end - begin == 1) {
    hint.kind = "channel";
    hint.text = "index " + std::to_string(begin) + " of " + axis +
                (begin == 0    ? ", the first, is wrong"
                 : end == size ? ", the last, is wrong"
                               : " is wrong");
  } else if (end == size) {
    hint.kind = "run";
    hint.text = axis + " is wrong from index " + std::to_string(begin) + " on (" +
                std::to_string(size - begin) + " of " + std::to_string(size) + ")";
    if (2 * begin == size) hint.text += ": its second half";
  } else if (innermost && end - begin == 32 && begin % 32 == 0) {
    hint.kind = "warp-lanes";
    hint.text = "indices " + Span(begin, end) + " of " + axis + ": 32 neighbours, as of one warp";
  } else if (begin == 0) {
    hint.kind = "run";
    hint.text = "the first " + std::to_string(end) + " of " + std::to_string(size) + " of " + axis +
                " are wrong";
    if (2 * end == size) hint.text += ": its first half";
  } else {
    hint.kind = "run";
    hint.text = "indices " + Span(begin, end) + " of " + axis + " are wrong";
  }
  return hint;
}

}  // namespace ops_debug::analysis
