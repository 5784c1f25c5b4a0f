// Puts calls into a twin that keep the cells of race_abi.h: before every access of shared and
// global memory, behind barriers, and at fences and strong accesses, which may order what barriers
// do not. For the checks of synchronisation also before barriers and where threads return.
// shadow/device/race.cu is what they call.
//
// Runs behind the memory checks, whose code it passes over: it looks at instructions that have a
// line in the program's text. So an access that the memory checks skip is not recorded, and what
// they copied is checked in both copies.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// What a function does that its callers and callees must know.
struct RaceFacts {
  bool has_fences = false;      // something orders memory other than a barrier
  bool block_barriers = false;  // of the whole block, surely
  bool warp_barriers = false;
  bool named_barriers = false;  // barriers that not the whole block takes part in, perhaps
  bool some_arrive = false;     // and some do not wait there

  bool Synchronises() const { return block_barriers || warp_barriers || named_barriers; }
  RaceFacts& operator|=(const RaceFacts& other);
};

struct ModuleRaceFacts {
  RaceFacts functions;                            // of all that are no entries
  std::map<std::string_view, RaceFacts> entries;  // by name, each with those of the functions
  // A function that is called through a pointer synchronises: nobody can tell its callers.
  bool hidden_synchronisation = false;
};

// `module` as it was loaded, without device code or twins.
ModuleRaceFacts ReadRaceFacts(const ptx::Module& module);

// Instruments `twin` in place and appends its sites to `sites`. For an entry, makes the launch
// parameter longer by a RaceLaunch, if there is room (`checked` in the result). Of `checks`,
// `races` and `sync` count.
ptx::Result<RacePlan> AddRaceChecks(ptx::Module& module, const Twin& twin,
                                    const ModuleRaceFacts& facts, const Checks& checks,
                                    const SourceFrames& frames, std::vector<Site>* sites);

}  // namespace ops_debug::shadow
