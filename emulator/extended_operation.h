// Instructions that are too heavy or too rare for a case of their own in the interpreter's switch:
// matrix operations, asynchronous copies, mbarriers, textures. The decoder creates one object per
// instruction (Decoder::EmitExtended), and the interpreter calls it through this interface.
//
// Matrix operations are collective over the warp: the decoder puts a convergence point in front
// (Decoder::EmitConvergence), so that Execute sees all of the warp's lanes at once.
#pragma once

#include <cstdint>
#include <string>

namespace ops_debug::emulator {

class InitCheck;
class Machine;
struct Warp;
struct Split;
struct Instruction;

class ExtendedOperation {
 public:
  enum class Step : uint8_t {
    kDone,
    kFault,  // Machine::Fail or FailAccess has said why
    kWait,   // nothing has happened: the lanes sleep here until Ready, then Execute runs again
  };

  ExtendedOperation() = default;
  virtual ~ExtendedOperation() = default;
  ExtendedOperation(const ExtendedOperation&) = delete;
  ExtendedOperation& operator=(const ExtendedOperation&) = delete;

  // Performs the instruction for the lanes of `active` (never 0). Registers of `in` (d, a, b, c)
  // and those that the object holds are read with Machine::At(*split.frame, ref).
  virtual Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const = 0;

  // Asked by the scheduler for lanes that sleep after kWait. Must not change anything.
  virtual bool Ready(const Machine& /*machine*/, const Warp& /*warp*/,
                     const Split& /*split*/) const {
    return true;
  }

  // True for instructions that give up after a time limit of the system (mbarrier.try_wait). When
  // no lane of the launch can go on, the scheduler sets Split::timed_out of such lanes and wakes
  // them; only when that does not help either is it a deadlock.
  virtual bool GivesUp() const { return false; }

  // False for instructions that compute on registers alone: a chosen schedule lets them order
  // nothing.
  virtual bool AccessesMemory() const { return true; }
  // False if registers are read through a, b and c of the instruction only.
  virtual bool HoldsRegisters() const { return true; }

  // How undefined values pass through the instruction (checks/init_check.h); called before Execute,
  // which may follow more than once for instructions that wait.
  virtual void PassDefinedness(InitCheck& /*check*/, Warp& /*warp*/, Split& /*split*/,
                               const Instruction& /*in*/, uint32_t /*active*/) const {}

  // What sleeping lanes wait for, for the explanation of a deadlock: "phase 3 of the mbarrier at
  // shared address 0x10, which expects 2 more arrivals".
  virtual std::string WaitsFor(const Machine& /*machine*/, const Warp& /*warp*/,
                               const Split& /*split*/) const {
    return "a condition that does not come true";
  }
};

// Conversions between the addresses of shared memory: register to register.
class AddressOperation : public ExtendedOperation {
 public:
  bool AccessesMemory() const override { return false; }
  bool HoldsRegisters() const override { return false; }
};

}  // namespace ops_debug::emulator
