// Which rule each lane operation follows, and the arithmetic of the exact ones.
#include "emulator/checks/definedness_flow.h"

#include <bit>

namespace ops_debug::emulator {
namespace {

struct Row {
  std::string_view prefix;
  Flow flow;
};

// By the beginning of the key, the first that fits.
constexpr Row kRows[] = {
    {"mov.", Flow::kMove},
    {"move.", Flow::kMove},
    {"pack.b", Flow::kMove},
    {"unpack.", Flow::kMove},
    {"brev.", Flow::kMove},
    {"shl.", Flow::kMoveByB},
    {"shr.", Flow::kMoveByB},
    {"prmt.", Flow::kMoveByC},
    {"shf.", Flow::kMoveByC},
    {"bfi.", Flow::kMoveByC},
    {"bfe.", Flow::kMoveByBC},
    {"xor.", Flow::kUnion},
    {"not.", Flow::kUnion},
    {"and.", Flow::kAnd},
    {"or.", Flow::kOr},
    {"lop3.", Flow::kTable},
    {"neg.s", Flow::kLeft},
    {"mul.wide.", Flow::kMultiply},
    {"mul.lo.b", Flow::kMultiply},
    {"mad.wide.", Flow::kMultiplyAdd},
    {"mad.lo.b", Flow::kMultiplyAdd},
    {"cvt.e4m3x2.f16x2", Flow::kBytesOfHalves},
    {"cvt.e5m2x2.f16x2", Flow::kBytesOfHalves},
    {"cvt.f16x2.e", Flow::kHalvesOfBytes},
    {"cvt.e4m3x2.f32", Flow::kBytesOfWords},
    {"cvt.e5m2x2.f32", Flow::kBytesOfWords},
};

constexpr std::string_view kOrders[] = {"lt.", "le.", "gt.", "ge."};

}  // namespace

Flow FlowOf(std::string_view key) {
  for (const Row& row : kRows) {
    if (key.starts_with(row.prefix)) return row.flow;
  }
  if (key.starts_with("slct.") && key.ends_with(".s32")) return Flow::kChoose;
  if (key.ends_with("f32x2")) return Flow::kAnyWord;
  if (key.ends_with("16x2")) return Flow::kAnyHalf;
  if (key == "add.b16" || key == "add.b32" || key == "add.b64") return Flow::kAdd;
  if (key == "sub.b16" || key == "sub.b32" || key == "sub.b64") return Flow::kSubtract;
  if (key.starts_with("eq.b") || key.starts_with("ne.b")) return Flow::kEqual;
  if (key.starts_with("addc.")) return Flow::kCarryAdd;
  if (key.starts_with("subc.")) return Flow::kCarrySubtract;
  for (std::string_view order : kOrders) {
    if (!key.starts_with(order)) continue;
    const char type = key[order.size()];
    if (type == 's') return Flow::kSignedOrder;
    return type == 'u' || type == 'b' ? Flow::kUnsignedOrder : Flow::kAny;
  }
  return Flow::kAny;
}

// The carries of the least and of the greatest sum that the undefined bits allow differ exactly
// where a carry is not known.
uint64_t UndefinedSum(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub) {
  return ua | ub | (((va & ~ua) + (vb & ~ub)) ^ ((va | ua) + (vb | ub)));
}

uint64_t UndefinedDifference(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub) {
  return ua | ub | (((va & ~ua) - (vb | ub)) ^ ((va | ua) - (vb & ~ub)));
}

// Below the lowest bit that an undefined bit can reach, a product is defined.
uint64_t UndefinedProduct(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub) {
  const auto reach = [](uint64_t undefined, uint64_t other) -> uint64_t {
    if (undefined == 0 || other == 0) return 0;
    const int lowest = std::countr_zero(undefined) + std::countr_zero(other);
    return lowest >= 64 ? 0 : ~0ull << lowest;
  };
  return reach(ua, vb | ub) | reach(ub, va | ua);
}

uint64_t UndefinedAnd(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub) {
  return (ua | ub) & (va | ua) & (vb | ub);
}

uint64_t UndefinedOr(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub) {
  return (ua | ub) & (~va | ua) & (~vb | ub);
}

// Every assignment of the undefined bits is one of eight per bit.
uint64_t UndefinedTable(const uint64_t v[3], const uint64_t u[3], uint64_t table) {
  const auto result = [table](uint64_t a, uint64_t b, uint64_t c) {
    uint64_t out = 0;
    for (int k = 0; k < 8; ++k) {
      if (((table >> k) & 1) == 0) continue;
      out |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
    }
    return out;
  };
  const uint64_t as_is = result(v[0], v[1], v[2]);
  uint64_t undefined = 0;
  for (int k = 1; k < 8; ++k) {
    undefined |=
        as_is ^ result((k & 4) != 0 ? v[0] ^ u[0] : v[0], (k & 2) != 0 ? v[1] ^ u[1] : v[1],
                       (k & 1) != 0 ? v[2] ^ u[2] : v[2]);
  }
  return undefined;
}

}  // namespace ops_debug::emulator
