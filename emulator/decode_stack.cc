// stacksave, stackrestore and alloca (PTX ISA 9.0, 9.7.15). A thread's dynamic stack grows from the
// end of its local memory towards its beginning, where the frames of functions lie. Each lane has a
// stack pointer of its own: sizes may differ between the lanes. A function gives back at its return
// what it took.
#include <cstring>
#include <string>

#include "emulator/checks/init_check.h"
#include "emulator/decoder.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// The stack pointer is kept as the bytes that are in use, 0 at the start of a thread.
uint64_t StackPointer(const Machine& machine, const Warp& warp, uint32_t lane) {
  return machine.launch().local_limit_bytes - warp.stack_bytes[lane];
}

class SaveStack : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    auto* d = reinterpret_cast<uint64_t*>(Machine::At(*split.frame, in.d));
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      d[lane] = StackPointer(machine, warp, lane);
    }
    return Step::kDone;
  }
};

class RestoreStack : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    const auto* a = reinterpret_cast<const uint64_t*>(Machine::At(*split.frame, in.a));
    const uint64_t limit = machine.launch().local_limit_bytes;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (a[lane] < StackPointer(machine, warp, lane) || a[lane] > limit) {
        machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                     "stackrestore of " + std::to_string(a[lane]) +
                         ", which is not a stack pointer that stacksave returned");
        return Step::kFault;
      }
      warp.stack_bytes[lane] = limit - a[lane];
    }
    return Step::kDone;
  }
};

class Allocate : public ExtendedOperation {
 public:
  explicit Allocate(uint64_t alignment_bytes) : alignment_bytes_(alignment_bytes) {}

  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override {
    const auto* size = reinterpret_cast<const uint64_t*>(Machine::At(*split.frame, in.a));
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint64_t top = warp.block->launch->local_limit_bytes - warp.stack_bytes[lane];
      if (size[lane] <= top)
        check.StartStack(warp, lane, (top - size[lane]) & ~(alignment_bytes_ - 1), size[lane]);
    }
    check.DefineRegister(*split.frame, in.d, active);
  }

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    auto* d = reinterpret_cast<uint64_t*>(Machine::At(frame, in.d));
    const auto* size = reinterpret_cast<const uint64_t*>(Machine::At(frame, in.a));
    // The frames below: those of this function and of its callers.
    const uint64_t floor = frame.local_base + frame.function->local_bytes;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint64_t top = StackPointer(machine, warp, lane);
      const uint64_t address = size[lane] > top ? 0 : (top - size[lane]) & ~(alignment_bytes_ - 1);
      if (size[lane] > top || address < floor) {
        machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                     "stack overflow: alloca of " + std::to_string(size[lane]) + " bytes, with " +
                         std::to_string(top < floor ? 0 : top - floor) +
                         " bytes of the thread's local memory left");
        return Step::kFault;
      }
      warp.stack_bytes[lane] = machine.launch().local_limit_bytes - address;
      d[lane] = address;
    }
    return Step::kDone;
  }

 private:
  uint64_t alignment_bytes_;
};

}  // namespace

bool Decoder::StackSave(const ptx::Instruction& in) {
  if (in.operands.size() != 1) return false;
  const Destination d = Write(in.operands[0], Type::kU64);
  EmitExtended(std::make_shared<SaveStack>());
  out_.code.back().d = d.ref;
  Finish(d);
  return true;
}

bool Decoder::StackRestore(const ptx::Instruction& in) {
  if (in.operands.size() != 1) return false;
  const Ref a = Read(in.operands[0], Type::kU64);
  EmitExtended(std::make_shared<RestoreStack>());
  out_.code.back().a = a;
  return true;
}

bool Decoder::Alloca(const ptx::Instruction& in) {
  if (in.operands.size() < 2 || in.operands.size() > 3) return false;
  uint64_t alignment = 8;
  if (in.operands.size() == 3) {
    if (in.operands[2].kind != ptx::Operand::Kind::kImmediate) return false;
    alignment = static_cast<uint64_t>(in.operands[2].value);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) return false;
  }
  const Ref size = Read(in.operands[1], Type::kU64);
  const Destination d = Write(in.operands[0], Type::kU64);
  EmitExtended(std::make_shared<Allocate>(std::max<uint64_t>(alignment, 8)));
  out_.code.back().d = d.ref;
  out_.code.back().a = size;
  Finish(d);
  return true;
}

// At the start and at each return of a device function that calls alloca.
void Decoder::KeepStack() {
  for (const ptx::Statement& statement : source_.body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr || instruction->opcode != "alloca" || source_.is_entry) continue;
    saved_stack_ = Temporary(3);
    EmitExtended(std::make_shared<SaveStack>());
    out_.code.back().d = saved_stack_;
    return;
  }
}

void Decoder::GiveBackStack() {
  if (saved_stack_ == kNoRef) return;
  EmitExtended(std::make_shared<RestoreStack>());
  out_.code.back().a = saved_stack_;
}

}  // namespace ops_debug::emulator
