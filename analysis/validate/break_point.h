// Where an operator breaks, found by experiment: inputs of which only one channel is not zero. A
// candidate that is right for channels 0 to 15 alone and wrong for 16 to 31 breaks at input channel
// 16, whatever its outputs look like.
#pragma once

#include <optional>
#include <string>

#include "analysis/validate/session.h"

namespace ops_debug::analysis {

struct BreakPoint {
  std::string input;  // name of the first input
  uint32_t axis = 0;
  int64_t first = 0;  // the first channel that is wrong alone
  std::string text;   // one sentence, with the pattern of wrong channels
};

// Asks both sides for each channel of the first input's channel axis, on a small shape if the fault
// shows there. Nothing: all channels are wrong, or none alone, or it cannot be asked.
std::optional<BreakPoint> FindBreakPoint(const ValidateSession& session,
                                         const ValidateCase& failed);

// "16-31", "every 16th from 3 (3, 19, 35, 51)", "1, 5 and 9".
std::string ChannelsText(const std::vector<int64_t>& channels);

}  // namespace ops_debug::analysis
