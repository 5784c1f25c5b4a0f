// Picks the set of lane operations for this processor and indexes it by name.
#include <cstdlib>
#include <cstring>
#include <set>

#include "emulator/isa/lane_ops.h"

#if defined(OPS_DEBUG_HAS_X86_SETS)
#define OPS_DEBUG_ISA avx2
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_ops.h"
#undef OPS_DEBUG_ISA
#define OPS_DEBUG_ISA avx512
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_ops.h"
#undef OPS_DEBUG_ISA
#endif
#define OPS_DEBUG_ISA baseline
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_ops.h"
#undef OPS_DEBUG_ISA

namespace ops_debug::emulator {
namespace {

std::string Key(const char* operation, const char* type) {
  std::string key(operation);
  key += '.';
  key += type;
  return key;
}

template <class Map>
auto Find(const Map& map, std::string_view key) {
  const auto found = map.find(std::string(key));
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

void LaneRegistry::Alu(const char* operation, const char* type, AluFn fn) {
  alu_[Key(operation, type)] = fn;
}
void LaneRegistry::Compare(const char* operation, const char* type, CompareFn fn) {
  compare_[Key(operation, type)] = fn;
}
void LaneRegistry::Carry(const char* operation, const char* type, CarryFn fn) {
  carry_[Key(operation, type)] = fn;
}
AluFn LaneRegistry::FindAlu(std::string_view key) const { return Find(alu_, key); }
CompareFn LaneRegistry::FindCompare(std::string_view key) const { return Find(compare_, key); }
CarryFn LaneRegistry::FindCarry(std::string_view key) const { return Find(carry_, key); }

std::vector<std::string> LaneRegistry::Keys() const {
  std::set<std::string> keys;
  for (const auto& [key, fn] : alu_) keys.insert(key);
  for (const auto& [key, fn] : compare_) keys.insert(key);
  for (const auto& [key, fn] : carry_) keys.insert(key);
  return {keys.begin(), keys.end()};
}

#define OPS_DEBUG_REGISTER_SET(set)      \
  do {                                   \
    set::RegisterIntegerLanes(registry); \
    set::RegisterBitLanes(registry);     \
    set::RegisterFloatLanes(registry);   \
    set::RegisterHalfLanes(registry);    \
    set::RegisterConvertLanes(registry); \
    set::RegisterNarrowLanes(registry);  \
    set::RegisterCompareLanes(registry); \
    registry.support_ = &set::Support(); \
  } while (false)

const LaneRegistry& SelectLanes() {
  static const LaneRegistry kRegistry = [] {
    LaneRegistry registry;
#if defined(OPS_DEBUG_HAS_X86_SETS)
    const char* limit = std::getenv("OPS_DEBUG_EMULATOR_ISA");
    const bool allow_avx2 = limit == nullptr || std::strcmp(limit, "baseline") != 0;
    const bool allow_avx512 = allow_avx2 && (limit == nullptr || std::strcmp(limit, "avx2") != 0);
    __builtin_cpu_init();
    if (allow_avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("fma")) {
      OPS_DEBUG_REGISTER_SET(avx512);
      return registry;
    }
    if (allow_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) {
      OPS_DEBUG_REGISTER_SET(avx2);
      return registry;
    }
#endif
    OPS_DEBUG_REGISTER_SET(baseline);
    return registry;
  }();
  return kRegistry;
}

const MatrixKernels& SelectMatrixKernels() {
  static const MatrixKernels& kKernels = []() -> const MatrixKernels& {
#if defined(OPS_DEBUG_HAS_X86_SETS)
    const char* set = SelectLanes().support().name;
    if (std::strcmp(set, "avx512") == 0) return avx512::Matrix();
    if (std::strcmp(set, "avx2") == 0) return avx2::Matrix();
#endif
    return baseline::Matrix();
  }();
  return kKernels;
}

}  // namespace ops_debug::emulator
