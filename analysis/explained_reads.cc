// Compares uninitialised reads with the reading sides of races, and accesses out of bounds with
// indexes that have wrapped (explained_reads.h).
#include "analysis/explained_reads.h"

#include <algorithm>

namespace ops_debug::analysis {
namespace {

bool IsSameMemory(const Finding& read, const Finding& race) {
  if (read.array && race.array) return read.array->name == race.array->name;
  if (read.allocation && race.allocation) return read.allocation->id == race.allocation->id;
  return false;
}

bool Explains(const Finding& race, const AccessInfo& side, const Finding& read) {
  if (side.access != "load" || side.kernel != read.kernel || side.function != read.function) {
    return false;
  }
  const bool same_instruction =
      side.ptx_line != 0 && side.ptx_line == read.ptx_line && side.instruction == read.instruction;
  return same_instruction || (!side.frames.empty() && side.frames == read.frames &&
                              race.space == read.space && IsSameMemory(read, race));
}

bool Explains(const Finding& race, const Finding& read) {
  const bool is_race = race.accesses.size() == 2 && race.severity == Severity::kError;
  return is_race && race.process_id == read.process_id &&
         std::any_of(race.accesses.begin(), race.accesses.end(),
                     [&](const AccessInfo& side) { return Explains(race, side, read); });
}

}  // namespace

void RemoveAccessesOfWrappedIndexes(std::vector<Finding>& findings) {
  const auto explains = [](const Finding& index, const Finding& access) {
    if (index.kind != "index-overflow" || index.process_id != access.process_id ||
        index.kernel != access.kernel || access.frames.empty()) {
      return false;
    }
    const SourceLocation& place = access.frames.front();
    return (!index.frames.empty() && index.frames.front().file == place.file &&
            index.frames.front().line == place.line) ||
           std::any_of(index.related.begin(), index.related.end(), [&](const RelatedPlace& used) {
             return used.file == place.file && used.line == place.line;
           });
  };
  std::vector<bool> explained(findings.size(), false);
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& access = findings[i];
    if (access.kind != "oob-global") continue;
    for (Finding& index : findings) {
      if (!explains(index, access)) continue;
      explained[i] = true;
      index.related.push_back({access.frames.front().file, access.frames.front().line,
                               "out of bounds: " + access.message});
      if (!index.allocation) index.allocation = access.allocation;
      break;
    }
  }
  size_t at = 0;
  std::erase_if(findings, [&](const Finding&) { return explained[at++]; });
}

void RemoveExplainedReads(std::vector<Finding>& findings) {
  std::vector<bool> explained;
  for (const Finding& read : findings) {
    explained.push_back(read.kind == "uninitialised-read" &&
                        std::any_of(findings.begin(), findings.end(),
                                    [&](const Finding& race) { return Explains(race, read); }));
  }
  size_t index = 0;
  std::erase_if(findings, [&](const Finding&) { return explained[index++]; });
}

}  // namespace ops_debug::analysis
