// Replays: memory at given addresses, and what became of the launches
// (shadow/abi/emulator_placement.h). Without a replay nothing here does anything.
#pragma once

#include <cstdint>

#include "emulator/executor.h"

namespace ops_debug::emulator {

bool IsReplay();
// What was said for the calling thread's next allocation or module; each is used once. 0: nothing.
uint64_t TakeNextPlace();
Program::VariablePlaces TakeVariablePlaces();
// A launch failed.
void NoteFailure(const LaunchError& error);

}  // namespace ops_debug::emulator
