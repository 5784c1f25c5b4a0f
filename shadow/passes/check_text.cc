// Texts in layers: an address, the bounds of its base, one comparison (Accumulate), a range of
// accesses, a group.
#include "shadow/passes/check_text.h"

#include <algorithm>

#include "shadow/abi/device_abi.h"
#include "shadow/passes/make_twins.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

std::string Number(uint64_t value) { return std::to_string(value); }
std::string Signed(int64_t value) { return std::to_string(value); }

Operand GuardOperand(const Instruction& instruction) {
  Operand guard;
  guard.kind = Operand::Kind::kRegister;
  guard.reg = instruction.guard.reg;
  guard.text = instruction.guard.text;
  return guard;
}

}  // namespace

std::string TextArguments::Add(const Operand& operand) {
  list_.push_back(operand);
  return "#" + std::to_string(list_.size() - 1);
}

std::string ScratchText() {
  return ".reg .b64 %odsa, %odst, %odsu, %odsbase, %odslast, %odsdir;\n"
         ".reg .b32 %odsv, %odsw;\n"
         ".reg .pred %odsp, %odsq;\n";
}

std::string LoadBoundsText(uint32_t slot, std::string_view parameter) {
  const std::string k = Number(slot), name(parameter);
  const uint64_t offset = sizeof(LaunchHeader) + slot * sizeof(BoundsEntry);
  return ".reg .b64 %odsb" + k + ", %odsl" + k + ";\nld.param.u64 %odsb" + k + ", [" + name + "+" +
         Number(offset) + "];\nld.param.u64 %odsl" + k + ", [" + name + "+" + Number(offset + 8) +
         "];\n";
}

std::string LoadDirectoryText() {
  return "ld.const.u64 %odsdir, [" + std::string(kModuleContextSymbol) +
         "];\ncvta.to.global.u64 %odsdir, %odsdir;\n";
}

// Accesses of one instruction sequence through the same base register, against the same bounds,
// under the same guard: if the lowest and the highest offset are in bounds, so are those between.
struct CheckText::Range {
  const CheckedAccess* first = nullptr;
  int64_t low = 0, high = 0;  // offsets in bytes

  bool Takes(const CheckedAccess& other) const {
    const Instruction &a = *first->instruction, &b = *other.instruction;
    const Operand &base_a = first->Address().children[0], &base_b = other.Address().children[0];
    return first->decision.test == other.decision.test && base_a.IsRegister() &&
           base_b.IsRegister() && base_a.reg == base_b.reg && base_a.reg != ptx::kNoRegister &&
           a.guard.reg == b.guard.reg && a.guard.negated == b.guard.negated &&
           first->access.bytes == other.access.bytes && first->access.space == other.access.space &&
           first->decision.slot == other.decision.slot &&
           first->decision.value.id == other.decision.value.id &&
           first->decision.value.region == other.decision.value.region &&
           first->decision.value.origin == other.decision.value.origin;
  }
};

bool CheckText::IsNarrow(const Operand& base) const {
  return base.IsRegister() && base.reg < function_.registers.size() &&
         ptx::TypeSizeBytes(function_.registers[base.reg].type) == 4;
}

// A 32-bit shared-memory address and a static array: half the instructions.
bool CheckText::FitsNarrowTest(const CheckedAccess& checked) const {
  return checked.decision.test == Test::kSymbol && !checked.decision.dynamic_shared &&
         checked.access.space == AccessSpace::kShared &&
         checked.decision.value.origin == Origin::kSymbol &&
         IsNarrow(checked.Address().children[0]);
}

// The address into %odsa as 64 bits.
std::string CheckText::Address(const CheckedAccess& checked, TextArguments* arguments) const {
  const Operand& address = checked.Address();
  const Operand& base = address.children[0];
  std::string text =
      (IsNarrow(base) ? "cvt.u64.u32 %odsa, " : "mov.u64 %odsa, ") + arguments->Add(base) + ";\n";
  if (address.offset != 0) text += "add.s64 %odsa, %odsa, " + Signed(address.offset) + ";\n";
  return text;
}

// What the inline test looks at: the access itself, or the last byte of a copy.
std::string CheckText::TestedAddress(const CheckedAccess& checked, TextArguments* arguments) const {
  std::string text = Address(checked, arguments);
  if (checked.access.last_byte) {
    text += "cvt.u64.u32 %odsu, " +
            arguments->Add(checked.instruction->operands[checked.access.size_operand]) +
            ";\nadd.s64 %odsa, %odsa, %odsu;\nadd.s64 %odsa, %odsa, -1;\n";
  }
  return text;
}

// The bounds of the array that the address comes from, as a BoundsEntry: base into %odsbase, last
// into %odslast.
std::string CheckText::SymbolBounds(const CheckedAccess& checked) const {
  const uint32_t access_bytes = checked.access.bytes;
  const Value& value = checked.decision.value;
  if (value.origin != Origin::kSymbol && value.origin != Origin::kLocalRegion) {
    // Unknown address in the shared window: up to the block's size behind what the system reserves
    // (1 KiB on sm_90).
    return "mov.u64 %odsbase, 0;\nmov.u32 %odsv, %total_smem_size;\ncvt.u64.u32 %odslast, %odsv;\n"
           "add.s64 %odslast, %odslast, " +
           Signed(1024 - int64_t{access_bytes}) + ";\n";
  }
  const AddressedSymbol& symbol = provenance_.symbols()[value.id];
  std::string text = "mov.u64 %odsbase, " + std::string(symbol.name) + ";\n";
  if (checked.access.space == AccessSpace::kGeneric && symbol.space != ".global") {
    text += "cvta" + std::string(symbol.space) + ".u64 %odsbase, %odsbase;\n";
  }
  if (value.region != 0) text += "add.s64 %odsbase, %odsbase, " + Signed(value.region) + ";\n";
  if (checked.decision.dynamic_shared) {
    // If it is smaller than the access, every access is a fault: -2 is a base that no address lies
    // behind.
    const std::string bytes = Number(access_bytes);
    return text + "mov.u32 %odsv, %dynamic_smem_size;\nsetp.lt.u32 %odsq, %odsv, " + bytes +
           ";\ncvt.u64.u32 %odslast, %odsv;\nsub.s64 %odslast, %odslast, " + bytes +
           ";\nselp.b64 %odslast, 0, %odslast, %odsq;\nselp.b64 %odsbase, -2, %odsbase, %odsq;\n";
  }
  if (checked.decision.test == Test::kStaticFault)
    return text + "mov.u64 %odsbase, -2;\nmov.u64 %odslast, 0;\n";
  return text + "mov.u64 %odslast, " + Number(checked.decision.array_bytes - access_bytes) + ";\n";
}

std::string CheckText::ShadowTest(const CheckedAccess& checked) const {
  const uint32_t granules = std::max(checked.access.bytes >> kShadowGranuleShift, 1u);
  const uint64_t mask = (kChunkBytes - 1) & ~uint64_t{granules - 1};
  // Two granules are read as one 16-bit word, four as 32 bits.
  const std::string width = granules == 1 ? "8" : granules == 2 ? "16" : "32";
  return "shr.u64 %odst, %odsa, " + Number(kDirectoryShift) + ";\nmin.u64 %odst, %odst, " +
         Number(kDirectoryEntries) +
         ";\nshl.b64 %odst, %odst, 3;\nadd.s64 %odst, %odst, %odsdir;\nld.global.u64 %odst, "
         "[%odst];\n"
         "shr.u64 %odsu, %odsa, " +
         Number(kShadowGranuleShift) + ";\nand.b64 %odsu, %odsu, " + Number(mask) +
         ";\nadd.s64 %odst, %odst, %odsu;\nld.global.u" + width + " %odsv, [%odst];\n";
}

// ORs "left comparison right" into %odsp, for threads that really make the access; the first one
// sets it.
std::string CheckText::Accumulate(const CheckedAccess& checked, const std::string& comparison,
                                  const std::string& type, const std::string& left,
                                  const std::string& right, TextArguments* arguments,
                                  bool* first) const {
  const Instruction& instruction = *checked.instruction;
  const MemoryAccess& access = checked.access;
  const bool guarded = instruction.guard.Present();
  const bool special = access.size_operand != 0 || access.ignore_operand != 0 ||
                       (access.collective_lanes != 0 && access.collective_lanes < 32);
  const std::string setp = "setp." + comparison, operands = ", " + left + ", " + right;
  std::string text;
  if (!guarded && !special) {
    text = *first ? setp + "." + type + " %odsp" + operands + ";\n"
                  : setp + ".or." + type + " %odsp" + operands + ", %odsp;\n";
  } else {
    const std::string target = *first ? "%odsp" : "%odsq";
    if (guarded) {
      text = setp + ".and." + type + " " + target + operands + ", " +
             (instruction.guard.negated ? "!" : "") + arguments->Add(GuardOperand(instruction)) +
             ";\n";
    } else {
      text = setp + "." + type + " " + target + operands + ";\n";
    }
    if (access.size_operand != 0) {
      text += "setp.ne.and.u32 " + target + ", " +
              arguments->Add(instruction.operands[access.size_operand]) + ", 0, " + target + ";\n";
    }
    if (access.ignore_operand != 0) {
      text += "@" + arguments->Add(instruction.operands[access.ignore_operand]) + " setp.ne.u32 " +
              target + ", 0, 0;\n";
    }
    if (access.collective_lanes != 0 && access.collective_lanes < 32) {
      text += "mov.u32 %odsw, %laneid;\nsetp.lt.and.u32 " + target + ", %odsw, " +
              Number(access.collective_lanes) + ", " + target + ";\n";
    }
    if (!*first) text += "or.pred %odsp, %odsp, %odsq;\n";
  }
  *first = false;
  return text;
}

std::string CheckText::RangeTest(const Range& range, TextArguments* arguments, bool* first) const {
  const CheckedAccess& checked = *range.first;
  const Decision& decision = checked.decision;
  const int64_t span = range.high - range.low;
  const std::string base = arguments->Add(checked.Address().children[0]);
  if (FitsNarrowTest(checked)) {
    const int64_t last = static_cast<int64_t>(decision.array_bytes) - checked.access.bytes - span;
    std::string text = "mov.u32 %odsw, " +
                       std::string(provenance_.symbols()[decision.value.id].name) +
                       ";\nsub.s32 %odsv, " + base + ", %odsw;\n";
    if (range.low != 0) text += "add.s32 %odsv, %odsv, " + Signed(range.low) + ";\n";
    // A span that does not fit the array at all: some access must fail, the slow path finds which.
    if (last < 0) return text + Accumulate(checked, "eq", "u32", "0", "0", arguments, first);
    return text + Accumulate(checked, "gt", "u32", "%odsv", Signed(last), arguments, first);
  }
  // Difference first: it is the same for all ranges of one register.
  const std::string k = Number(decision.slot);
  std::string text = "sub.s64 %odst, " + base + ", %odsb" + k + ";\n";
  const auto compare = [&](int64_t offset) {
    std::string part;
    if (offset != 0) part = "add.s64 %odsu, %odst, " + Signed(offset) + ";\n";
    return part + Accumulate(checked, "gt", "u64", offset != 0 ? "%odsu" : "%odst", "%odsl" + k,
                             arguments, first);
  };
  text += compare(range.low);
  if (span != 0) text += compare(range.high);
  return text;
}

std::string CheckText::GroupTest(std::span<const CheckedAccess> accesses,
                                 TextArguments* arguments) const {
  std::vector<Range> ranges;
  std::string text;
  bool first = true;
  for (const CheckedAccess& checked : accesses) {
    const Decision& decision = checked.decision;
    if (decision.test == Test::kNone) continue;
    const bool plain = !decision.test_alignment && checked.access.size_operand == 0 &&
                       checked.access.ignore_operand == 0 && checked.access.collective_lanes == 0;
    if (plain && checked.Address().children[0].IsRegister() &&
        (decision.test == Test::kParameter || FitsNarrowTest(checked))) {
      const int64_t offset = checked.Address().offset;
      const auto range = std::find_if(ranges.begin(), ranges.end(),
                                      [&](const Range& known) { return known.Takes(checked); });
      if (range == ranges.end()) {
        ranges.push_back({&checked, offset, offset});
      } else {
        range->low = std::min(range->low, offset);
        range->high = std::max(range->high, offset);
      }
      continue;
    }
    text += TestedAddress(checked, arguments);
    if (decision.test == Test::kParameter) {
      const std::string k = Number(decision.slot);
      text += "sub.s64 %odst, %odsa, %odsb" + k + ";\n" +
              Accumulate(checked, "gt", "u64", "%odst", "%odsl" + k, arguments, &first);
    } else if (decision.test == Test::kShadow) {
      text +=
          ShadowTest(checked) + Accumulate(checked, "ne", "u32", "%odsv", "0", arguments, &first);
    } else {
      text += SymbolBounds(checked) + "sub.s64 %odst, %odsa, %odsbase;\n" +
              Accumulate(checked, "gt", "u64", "%odst", "%odslast", arguments, &first);
    }
    if (decision.test_alignment && checked.access.alignment_bytes > 1) {
      text += "and.b64 %odst, %odsa, " + Number(checked.access.alignment_bytes - 1) + ";\n" +
              Accumulate(checked, "ne", "s64", "%odst", "0", arguments, &first);
    }
  }
  for (const Range& range : ranges) text += RangeTest(range, arguments, &first);
  return text;
}

std::string CheckText::SlowCheck(const CheckedAccess& checked, TextArguments* arguments) const {
  std::string text = Address(checked, arguments);
  if (checked.decision.test == Test::kParameter) {
    const std::string k = Number(checked.decision.slot);
    text += "mov.u64 %odsbase, %odsb" + k + ";\nmov.u64 %odslast, %odsl" + k + ";\n";
  } else if (checked.decision.test == Test::kShadow) {
    text += "mov.u64 %odsbase, -1;\nmov.u64 %odslast, 0;\n";
  } else {
    text += SymbolBounds(checked);
  }
  std::string bytes = Number(checked.access.bytes);
  uint32_t alignment = checked.access.alignment_bytes;
  if (checked.access.last_byte) {
    // Bounds for one byte become bounds for the copy; if it is longer than the allocation, every
    // address fails (-2). With kBoundsUseShadow (-1) shadow memory judges the whole copy.
    bytes = arguments->Add(checked.instruction->operands[checked.access.size_operand]);
    alignment = checked.access.copy_bytes;
    text += "cvt.u64.u32 %odsu, " + bytes +
            ";\nadd.s64 %odsu, %odsu, -1;\nsetp.lt.u64 %odsq, %odslast, %odsu;\n"
            "setp.ne.and.s64 %odsq, %odsbase, -1, %odsq;\nsub.s64 %odslast, %odslast, %odsu;\n"
            "selp.b64 %odsbase, -2, %odsbase, %odsq;\nselp.b64 %odslast, 0, %odslast, %odsq;\n";
  }
  return text +
         "{\n.param .b64 odsa0;\n.param .b32 odsa1;\n.param .b32 odsa2;\n.param .b32 "
         "odsa3;\n.param .b64 odsa4;\n"
         ".param .b64 odsa5;\n.param .b64 odsa6;\n.param .b32 odsr;\n"
         "st.param.b64 [odsa0], %odsa;\nst.param.b32 [odsa1], " +
         Number(checked.site) + ";\nst.param.b32 [odsa2], " + bytes + ";\nst.param.b32 [odsa3], " +
         Number(alignment) +
         ";\nst.param.b64 [odsa4], %odsbase;\nst.param.b64 [odsa5], %odslast;\nst.param.b64 "
         "[odsa6], " +
         std::string(kLaunchIdRegister) +
         ";\ncall (odsr), __ops_debug_check, (odsa0, odsa1, odsa2, odsa3, odsa4, odsa5, odsa6);\n"
         "ld.param.b32 %odsw, [odsr];\n}\nsetp.ne.u32 %odsp, %odsw, 0;\n";
}

std::string CheckText::ZeroDestinations(const Instruction& instruction,
                                        TextArguments* arguments) const {
  std::string text;
  if (instruction.operands.empty() || instruction.operands[0].IsAddress()) return text;
  const Operand& destination = instruction.operands[0];
  const std::span<const Operand> targets = destination.kind == Operand::Kind::kVector
                                               ? std::span<const Operand>(destination.children)
                                               : std::span<const Operand>(&destination, 1);
  for (const Operand& target : targets) {
    if (!target.IsRegister() || target.reg >= function_.registers.size()) continue;
    const uint32_t bytes = ptx::TypeSizeBytes(function_.registers[target.reg].type);
    const std::string name = arguments->Add(target);
    if (bytes == 16) {
      text += "mov.u64 %odst, 0;\nmov.b128 " + name + ", {%odst, %odst};\n";
    } else if (bytes == 1) {
      text += "cvt.u8.u32 " + name + ", 0;\n";
    } else {
      text += "mov.b" + std::to_string(bytes * 8) + " " + name + ", 0;\n";
    }
  }
  return text;
}

}  // namespace ops_debug::shadow
