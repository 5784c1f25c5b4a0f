// Uninitialised reads of one launch, exactly: every value carries which of its bits are undefined
// (definedness_flow.h), and a read of memory that nobody has written is reported only where the
// value matters: it decides a branch or a predicate, is an address or an operand of a barrier, or a
// wholly undefined element is stored in global memory. Values that are masked away, compared and
// ignored, or carried along beside defined bytes (padding of structures, the tail of a bit mask)
// are no finding. One report per load, with the first use; the use itself then counts as defined,
// so that one fault is told once.
//
// What stored in whole counts as: an element of the store whose bits are all undefined, unless the
// value is a plain copy of bytes that were loaded together with defined ones, or of single bytes
// among defined ones, which is how structures with padding are copied.
//
// Registers count as defined at first: compilers use unwritten ones on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/checks/launch_checks.h"
#include "emulator/checks/memory_definedness.h"
#include "emulator/checks/register_definedness.h"
#include "emulator/checks/reports.h"

namespace ops_debug::emulator {

class Checks;
struct DeviceOperation;

// Loads whose undefined values are still on their way, across launches. Under Checks::mutex.
class ReadOrigins {
 public:
  ReadOrigin Add(AccessReport read);  // kCarried is not set; 0: too many
  void Clear() { reads_.resize(1); }
  const AccessReport& operator[](ReadOrigin origin) const { return reads_[origin & ~kCarried]; }

 private:
  static constexpr size_t kLimit = 1 << 18;
  std::vector<AccessReport> reads_{1};
};

// What all launches of a process share.
struct InitMemory : public MemoryDefinedness {
  ReadOrigins origins;
  uint32_t running_launches = 0;
};

class InitCheck : public LaunchObserver {
 public:
  InitCheck(Checks& checks, InitMemory& memory, Launch& launch,
            std::shared_ptr<const DeviceOperation> operation);
  ~InitCheck() override;

  // ---- LaunchObserver
  bool WantsInstructions() const override { return true; }
  void StartBlock(Block& block) override;
  void BeforeGuard(Warp& warp, Split& split, const Instruction& in, uint32_t lanes) override;
  void BeforeInstruction(Warp& warp, Split& split, const Instruction& in, uint32_t lanes) override;
  void CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                             uint32_t lanes) override;
  void Call(Warp& warp, Frame& caller, Frame& callee, uint32_t lanes) override;
  void Return(Warp& warp, Frame& callee, uint32_t lanes) override;
  void AsyncCopy(Warp& warp, uint32_t lane, const Function* function, uint32_t statement,
                 std::byte* to, const std::byte* from, uint64_t bytes) override;
  void EndLaunch() override;

  // ---- for extended operations (ExtendedOperation::PassDefinedness), before they execute
  // An instruction of some lanes, at which something is used or read.
  struct Place {
    Warp& warp;
    Frame& frame;
    const Instruction& in;
  };
  RegisterDefinedness& Registers(Frame& frame);
  // The lanes' value decides where memory is accessed, what is waited for...
  void UseRegister(const Place& place, Ref ref, uint32_t lanes, const char* use);
  void UsePredicate(const Place& place, Ref ref, uint32_t lanes, const char* use);
  // The result does not depend on undefined values.
  void DefineRegister(Frame& frame, Ref ref, uint32_t lanes);
  void DefinePredicate(Frame& frame, Ref ref, uint32_t lanes);
  // At most 128 bytes, read by `lane` at an address of `space`. False: all are defined. Else the
  // undefined bits, and an origin for each four bytes (origins may be null).
  bool LoadBytes(const Place& place, Space space, uint64_t address, uint32_t lane, uint32_t bytes,
                 uint8_t* undefined, ReadOrigin* origins);
  // One element of a store, of 1, 2, 4 or 8 bytes: a use if it is wholly undefined and goes to
  // global memory.
  void StoreElement(const Place& place, Space space, uint64_t address, uint32_t lane,
                    uint32_t bytes, uint64_t undefined, ReadOrigin origin);
  // What alloca gives a thread begins undefined. `address` in its local memory.
  void StartStack(const Warp& warp, uint32_t lane, uint64_t address, uint64_t bytes);
  // No use. `undefined` null: all are defined.
  void StoreBytes(const Place& place, Space space, uint64_t address, uint32_t lane, uint32_t bytes,
                  const uint8_t* undefined, ReadOrigin origin);

 private:
  // Where bytes lie: in a block's own memory, in device memory, or where everything is defined.
  struct Bytes {
    LocalBytes* local = nullptr;
    uint64_t at = 0;        // offset in `local`, or device address
    uint64_t reported = 0;  // address or offset for reports
    uint32_t space = 0;     // proto AddressSpace; 0: always defined
  };
  struct BlockBytes {
    BlockBytes(size_t shared_bytes, size_t local_bytes)
        : shared(shared_bytes), local(local_bytes) {}
    LocalBytes shared, local;
  };
  // Of one load in a launch; later ones share the last one's place.
  static constexpr uint32_t kOriginsPerSite = 256, kCarriedPerSite = 4;
  struct SiteOrigins {
    ReadOrigin last = 0;
    uint32_t count = 0;
  };

  // ---- init_check.cc
  BlockBytes& Of(const Block& block);
  Bytes Find(const Place& place, Space space, uint64_t address, uint32_t lane, uint32_t bytes);
  Bytes FindPointer(const Block& block, const std::byte* pointer);
  bool Load(const Bytes& from, uint32_t bytes, uint8_t* undefined) const;
  void Store(const Bytes& to, uint32_t bytes, const uint8_t* undefined, ReadOrigin origin);
  ReadOrigin OriginAt(const Bytes& from) const;
  ReadOrigin NewOrigin(const Place& place, const Bytes& from, uint32_t lane, uint32_t bytes,
                       const uint8_t* undefined, uint32_t access, uint32_t limit = kOriginsPerSite);
  bool LooksCarried(const Bytes& from, uint32_t bytes, const uint8_t* undefined) const;
  void Use(const Place& place, ReadOrigin origin, const char* use);
  static bool IsTool(const Place& place);
  uint64_t RowOf(const Warp& warp, uint32_t lane) const;  // in LocalBytes
  void StartLocal(Warp& warp, const Frame& frame, uint32_t lanes);
  uint8_t ShiftOf(const Frame& frame, Ref ref) const;
  void MarkResults(Frame& frame, const Instruction& in, uint32_t lanes, ReadOrigin origin);

  // ---- init_calls.cc
  void CopySlot(Warp& warp, Frame& from_frame, const Slot& from, Frame& to_frame, const Slot& to,
                uint32_t lane);
  void PassBuiltin(const Place& place, uint32_t lanes);
  void UsePrinted(const Place& place, uint32_t lanes);

  // ---- init_registers.cc: instructions that compute on registers
  void PassAlu(Frame& frame, const Instruction& in, uint32_t lanes);
  void PassSelect(Frame& frame, const Instruction& in, uint32_t lanes);
  void PassCompare(Frame& frame, const Instruction& in, uint32_t lanes);
  void PassPredicates(Frame& frame, const Instruction& in, uint32_t lanes);
  void PassCarry(Frame& frame, const Instruction& in, uint32_t lanes);
  void PassWarpResults(Warp& warp, Op op, Split* const* splits, uint32_t count, uint32_t lanes);

  // ---- init_access.cc: instructions that access memory
  void PassLoad(const Place& place, uint32_t lanes);
  void PassStore(const Place& place, uint32_t lanes);
  void PassAtomic(const Place& place, uint32_t lanes);
  void PassAtomicLane(const Place& place, const Bytes& bytes, uint32_t lane, uint32_t element);
  void UseCopyOperands(const Place& place, uint32_t lanes);
  void LoadLane(const Place& place, const MemoryAccess& access, const Bytes& from, uint32_t lane);
  void StoreValue(const Place& place, const Bytes& to, uint32_t bytes, uint64_t undefined,
                  ReadOrigin origin);
  void StoreLane(const Place& place, const MemoryAccess& access, const Bytes& to, uint32_t lane);

  Checks& checks_;
  InitMemory& memory_;
  Launch& launch_;
  std::shared_ptr<const DeviceOperation> operation_;
  std::unordered_map<const Block*, std::unique_ptr<BlockBytes>> blocks_;
  const Block* last_block_ = nullptr;
  BlockBytes* last_bytes_ = nullptr;
  std::map<std::pair<const Function*, uint32_t>, SiteOrigins> sites_;
  std::map<SiteId, UninitialisedReport> reports_;
  // Of the instruction whose guard was looked at last.
  uint32_t undefined_guard_ = 0;
  ReadOrigin guard_origin_ = 0;
};

}  // namespace ops_debug::emulator
