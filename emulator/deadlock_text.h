// The explanation of a deadlock: who waits where for what.
#pragma once

#include <string>
#include <vector>

#include "emulator/machine.h"

namespace ops_debug::emulator {

// Adds the threads of `block` to the groups of those that wait at the same place.
void AddWaits(const Machine& machine, const Block& block, std::vector<WaitGroup>& groups);

// "32 threads wait at `bar.sync 0;` (PTX line 12, a.cu:9), the first of them in block (0,0,0),
// thread (0,0,0), for barrier 0, at which 32 of 64 threads have arrived; ...".
std::string DescribeWaits(const Launch& launch, const std::vector<WaitGroup>& groups);

// The whole message of a deadlocked launch, from Launch::waits.
std::string DescribeLaunchDeadlock(const Launch& launch);

}  // namespace ops_debug::emulator
