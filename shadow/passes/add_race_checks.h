// Puts calls into a twin that keep the cells of race_abi.h: before every access of shared and
// global memory, behind barriers, and at fences and strong accesses, which may order what barriers
// do not. For the checks of synchronisation also before barriers and where threads return.
// shadow/device/race.cu is what they call.
//
// Runs behind the memory checks, whose code it passes over: it looks at instructions that have a
// line in the program's text. So an access that the memory checks skip is not recorded, and what
// they copied is checked in both copies.
#pragma once

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/decide_race_checks.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"

namespace ops_debug::shadow {

// Instruments `twin` in place. For an entry, makes the launch parameter longer by a RaceLaunch, if
// there is room (`checked` in the result). `lean`: a copy of the twin's function as it comes, which
// becomes the lean twin; or null.
ptx::Result<RacePlan> AddRaceChecks(ptx::Module& module, const Twin& twin,
                                    const ModuleRaceFacts& facts, RaceDecisions decisions,
                                    ptx::Function* lean);

}  // namespace ops_debug::shadow
