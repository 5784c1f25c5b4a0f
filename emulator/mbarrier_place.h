// Finding the mbarrier that an address operand names.
#pragma once

#include <string>

#include "emulator/lane_operand.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {

// The mbarrier at `lane`'s address; fails the launch with a reason if there can be none.
bool FindMbarrier(Machine& machine, Warp& warp, Frame& frame, const AddressOperand& address,
                  uint32_t lane, MbarrierPlace* place);
// The same without an error, for lanes that have executed the instruction before.
bool PeekMbarrier(const Warp& warp, Frame& frame, const AddressOperand& address, uint32_t lane,
                  MbarrierPlace* place);
// "the mbarrier at shared address 0x10", with the block if it is not `warp`'s.
std::string NameMbarrier(const Warp& warp, MbarrierPlace place);

// Fails with "<instruction> on the mbarrier at ..., <problem>".
bool FailMbarrier(Machine& machine, Warp& warp, uint32_t lane, const char* instruction,
                  MbarrierPlace place, const std::string& problem);

}  // namespace ops_debug::emulator
