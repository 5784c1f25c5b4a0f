// Which accesses and synchronisations of a function a twin checks for races, and which need no
// check: decided per instruction of the original, before add_race_checks.h writes the code.
//
// Nothing is executed for reads of shared memory that barriers keep apart from all writes, nor for
// barriers that all threads of the block pass together, whatever their numbers. What the arguments
// of a launch decide (own_proof.h) is left out of a second twin, the lean one.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/memory_access.h"
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

// One access of an instruction of the original.
struct RaceAccess {
  MemoryAccess access;
  uint32_t site = 0;  // from 1
  int slot = -1;      // of the pointer parameter
  int group = -1;     // of accesses to shared memory that may conflict
  bool lean = true;   // checked in the lean twin, too
};

struct RaceDecisions {
  RacePlan plan;
  // By place in the program's text (PlaceOf).
  std::map<uint64_t, std::vector<RaceAccess>> accesses;
  std::map<uint64_t, uint32_t> sync_sites;  // from 1
  // What returns is remembered, because some synchronisation is checked.
  bool exits = false;
  bool calls_others = false;
  bool lean = false;  // a lean twin is worth having
};

uint64_t PlaceOf(const ptx::Instruction& instruction);

// Appends to `sites`.
RaceDecisions DecideRaceChecks(const ptx::Module& module, const Twin& twin,
                               const ModuleRaceFacts& facts, const Checks& checks,
                               const SourceFrames& frames, std::vector<Site>* sites);

}  // namespace ops_debug::shadow
