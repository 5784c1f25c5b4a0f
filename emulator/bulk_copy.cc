// Performing linear copies and reductions, and the checks of their addresses.
#include "emulator/bulk_copy.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/async_range.h"
#include "emulator/atomics.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

void ReduceInto(std::byte* target, const std::byte* source, uint64_t bytes,
                const Reduction& reduction) {
  for (uint64_t i = 0; i + reduction.element_bytes <= bytes; i += reduction.element_bytes) {
    uint64_t value = 0;
    std::memcpy(&value, source + i, reduction.element_bytes);
    ApplyAtomic(reduction.operation, reduction.type, target + i, value, 0);
  }
}

void LinearCopy::Read() {
  if (source_ != nullptr) buffer_.assign(source_, source_ + bytes_);
}

void LinearCopy::Write() {
  if (reduces_) {
    ReduceInto(target_, buffer_.data(), bytes_, reduction_);
  } else if (bytes_ != 0) {
    std::memcpy(target_, buffer_.data(), bytes_);
  }
}

bool FindRange(Machine& machine, Warp& warp, Frame& frame, const AddressOperand& operand,
               uint32_t lane, uint64_t bytes, uint32_t alignment, const char* what,
               AsyncRange* range) {
  const uint64_t address = operand.Of(frame, lane);
  const bool is_shared = operand.space == Space::kShared ||
                         operand.space == Space::kSharedCluster ||
                         (operand.space == Space::kGeneric && IsSharedGeneric(address));
  const std::string name = std::string(what) + ", " + std::to_string(bytes) + " bytes at " +
                           (is_shared ? "shared" : "global") + " address " + Hex(address);
  if ((address & (alignment - 1)) != 0) {
    return machine.Fail(LaunchError::Code::kMisalignedAddress, warp, lane,
                        name + ", must be aligned to " + std::to_string(alignment) + " bytes");
  }
  if (is_shared) {
    const uint64_t limit = machine.launch().shared_limit_bytes;
    range->block = Machine::SharedBlock(warp, operand.space, address, &range->offset);
    if (range->block == nullptr) {
      LaunchError::Code code;
      const std::string why = machine.DescribeSharedAddress(
          warp, operand.space, operand.space == Space::kGeneric ? address - kSharedWindow : address,
          &code);
      return machine.Fail(code, warp, lane, name + why);
    }
    if (bytes > limit || range->offset > limit - bytes) {
      return machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                          name + ", reaches outside the block's " + std::to_string(limit) +
                              " bytes of shared memory");
    }
    range->pointer = range->block->shared.data() + range->offset;
    return true;
  }
  if (!machine.launch().memory->Accessible(address, bytes)) {
    return machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                        name + ", reaches where no allocation lies");
  }
  range->block = nullptr;
  range->pointer = reinterpret_cast<std::byte*>(address);
  return true;
}

}  // namespace ops_debug::emulator
