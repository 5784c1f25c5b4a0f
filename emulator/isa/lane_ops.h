// Lane operations: what one decoded instruction does to the 32 lanes of a warp at once. A register
// is an array of 32 equally wide values (structure of arrays), so each operation is a counted loop
// that the compiler vectorises.
//
// The loops are compiled three times (baseline x86-64, AVX2, AVX-512) in separate namespaces;
// SelectLanes() picks the best set that this processor runs. Operations have names ("add.b32",
// "setp.lt.f32"); the decoder looks them up once per instruction, so there is no second list of
// opcodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ops_debug::emulator {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = ~0u;
// Alignment of every lane array, scratch arrays included.
inline constexpr size_t kLaneArrayAlignment = 64;

// d[i] = f(a[i], b[i], c[i], immediate) for all 32 lanes. d may be the same array as a source.
// Unused sources may be null. Operations are total: no value of a dead lane can trap.
using AluFn = void (*)(void* d, const void* a, const void* b, const void* c, uint64_t immediate);
// Bit i of the result: the relation holds in lane i.
using CompareFn = uint32_t (*)(const void* a, const void* b);
// As AluFn, with a carry bit per lane in and out.
using CarryFn = uint32_t (*)(void* d, const void* a, const void* b, const void* c,
                             uint32_t carry_in);

// How 32 addresses lie.
enum class AddressPattern : uint8_t { kScattered, kUniform, kConsecutive };

// Operations of the executor itself; index = log2 of the lane width in bytes (0..3).
struct LaneSupport {
  void (*blend[4])(void* d, const void* s, uint32_t mask);  // d[i] = mask_i ? s[i] : d[i]
  void (*select[4])(void* d, const void* a, const void* b,
                    uint32_t mask);  // d[i] = mask_i ? a[i] : b[i]
  void (*splat[4])(void* d, uint64_t value);
  void (*add_offset32)(uint64_t* d, const void* a,
                       int64_t offset);  // zero-extended 32-bit addresses
  void (*add_offset64)(uint64_t* d, const void* a, int64_t offset);
  AddressPattern (*classify)(const uint64_t* addresses, uint64_t stride);
  // All addresses are below limit - access_bytes + 1 and multiples of access_bytes (a power of
  // two).
  bool (*all_within)(const uint64_t* addresses, uint64_t limit, uint64_t access_bytes);
  // Vectors of 32-bit elements, count 2 or 4: memory [lane][k] <-> registers [k][lane].
  void (*deinterleave32)(void* const* registers, const void* memory, uint32_t count);
  void (*interleave32)(void* memory, void* const* registers, uint32_t count);
  const char* name;
};

class LaneRegistry {
 public:
  // The key is `operation` + "." + `type`.
  void Alu(const char* operation, const char* type, AluFn fn);
  void Compare(const char* operation, const char* type, CompareFn fn);
  void Carry(const char* operation, const char* type, CarryFn fn);

  AluFn FindAlu(std::string_view key) const;  // nullptr if absent
  CompareFn FindCompare(std::string_view key) const;
  CarryFn FindCarry(std::string_view key) const;
  // Every key, in order.
  std::vector<std::string> Keys() const;
  const LaneSupport& support() const { return *support_; }

 private:
  friend const LaneRegistry& SelectLanes();
  std::unordered_map<std::string, AluFn> alu_;
  std::unordered_map<std::string, CompareFn> compare_;
  std::unordered_map<std::string, CarryFn> carry_;
  const LaneSupport* support_ = nullptr;
};

// The set for this processor; OPS_DEBUG_EMULATOR_ISA=baseline|avx2 asks for a lesser one (for tests
// and comparison).
const LaneRegistry& SelectLanes();

}  // namespace ops_debug::emulator
