// See outcome.h.
#include "replayer/outcome.h"

#include <cstdio>
#include <fstream>

namespace ops_debug::replayer {

std::string_view WordOf(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::kComplete:
      return "complete";
    case OutcomeKind::kDamaged:
      return "damaged";
    case OutcomeKind::kUnplaceable:
      return "unplaceable";
    case OutcomeKind::kUnsupported:
      return "unsupported";
    case OutcomeKind::kFailed:
      return "failed";
    case OutcomeKind::kDeadlock:
      return "deadlock";
    case OutcomeKind::kWaits:
      return "waits";
    case OutcomeKind::kSpins:
      return "spins";
  }
  return "failed";
}

void WriteOutcome(const std::string& capture_path, const Outcome& outcome) {
  const std::string path = capture_path + ".result";
  const std::string unfinished = path + ".new";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << WordOf(outcome.kind) << '\n' << outcome.reason << '\n';
    if (!file.flush()) return;  // no result: as if we had been killed
  }
  std::rename(unfinished.c_str(), path.c_str());
}

}  // namespace ops_debug::replayer
