// Where an atomic should be and is none, and atomics that cannot do what they are meant for.
//
// The maximum or minimum of floats by an integer atomic: bits of floats are ordered like signed
// integers unless both are negative, then the other way round. Unsigned, every negative one is
// above all others. Right programs choose the instruction by the sign of their value (signed for
// positive values, unsigned and the opposite operation for negative ones), so a fault is one only
// with the other combination, and where the old value is negative.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/checks/race_check.h"
#include "emulator/machine.h"
#include "ptx/cfg.h"
#include "ptx/def_use.h"

namespace ops_debug::emulator {
namespace {

bool IsFloatRegister(const ptx::Function& function, const ptx::Operand& operand) {
  if (!operand.IsRegister() || operand.reg >= function.registers.size()) return false;
  const std::string_view type = function.registers[operand.reg].type;
  return type == ".f32" || type == ".f64";
}

// Whether the register holds the bits of a float: some `mov.b32 %r, %f` writes it.
bool HoldsFloatBits(const ptx::Function& function, ptx::RegisterId reg) {
  for (const ptx::Statement& statement : function.body) {
    const auto* const in = std::get_if<ptx::Instruction>(&statement);
    if (in == nullptr || !in->Is("mov") || in->operands.size() != 2) continue;
    if (in->operands[0].IsRegister() && in->operands[0].reg == reg &&
        IsFloatRegister(function, in->operands[1]))
      return true;
  }
  return false;
}

constexpr int kLongestChain = 64;

// The memory operand of a load or store; null if it has none.
const ptx::Operand* AddressOf(const ptx::Instruction& in) {
  for (const ptx::Operand& operand : in.operands) {
    if (operand.IsAddress() && operand.children.size() == 1) return &operand;
  }
  return nullptr;
}

bool SameAddress(const ptx::Operand& a, const ptx::Operand& b) {
  const ptx::Operand& x = a.children[0];
  const ptx::Operand& y = b.children[0];
  return a.offset == b.offset && x.kind == y.kind && x.offset == y.offset &&
         (x.IsRegister() ? x.reg == y.reg : x.text == y.text);
}

void AddRegisters(const ptx::Operand& operand, std::vector<ptx::RegisterId>& registers) {
  if (operand.IsRegister()) registers.push_back(operand.reg);
  for (const ptx::Operand& child : operand.children) AddRegisters(child, registers);
}

// Whether a value that `load` reads reaches what `store` writes, through registers.
bool FlowsInto(const ptx::Function& function, const ptx::Instruction& load,
               const ptx::Instruction& store) {
  auto flow = ptx::ControlFlow::Build(function);
  if (!flow.ok()) return false;
  const ptx::DefUse def_use(function, *flow);
  const auto index_of = [&](const ptx::Instruction& in) {
    uint32_t i = 0;
    while (std::get_if<ptx::Instruction>(&function.body[i]) != &in) ++i;
    return i;
  };
  const uint32_t source = index_of(load);
  std::vector<uint32_t> open{index_of(store)};
  std::set<uint32_t> seen;
  bool first = true;
  for (int steps = 0; !open.empty() && steps < kLongestChain; ++steps) {
    const uint32_t at = open.back();
    open.pop_back();
    const auto& in = std::get<ptx::Instruction>(function.body[at]);
    std::vector<ptx::RegisterId> registers;
    // Of the store what it writes, not where to; of others what they read.
    for (size_t i = first ? 1 : 0; i < in.operands.size(); ++i)
      AddRegisters(in.operands[i], registers);
    first = false;
    for (const ptx::RegisterId reg : registers) {
      for (const uint32_t definition : def_use.ReachingDefinitions(at, reg)) {
        const uint32_t from = def_use.definitions()[definition].statement;
        if (from == source) return true;
        if (from == ptx::DefUse::kAtEntry || !seen.insert(from).second) continue;
        const auto& next = std::get<ptx::Instruction>(function.body[from]);
        if (!next.Is("ld") && !next.Is("atom") && !next.Is("call")) open.push_back(from);
      }
    }
  }
  return false;
}

}  // namespace

bool RaceCheck::IsUpdate(SiteId load, SiteId store) const {
  const auto [known, is_new] = updates_.emplace(std::pair(load, store), false);
  if (!is_new) return known->second;
  for (const auto& function : launch_.program->functions) {
    const auto statement_of = [&](SiteId site) {
      return static_cast<size_t>(std::find(function->sites.begin(), function->sites.end(), site) -
                                 function->sites.begin());
    };
    const size_t from = statement_of(load), to = statement_of(store);
    if (from >= function->sites.size() || to >= function->sites.size()) continue;
    const ptx::Function& source = launch_.program->Source(*function);
    const ptx::Instruction* const reads = InstructionAt(source, function->statements[from]);
    const ptx::Instruction* const writes = InstructionAt(source, function->statements[to]);
    if (reads == nullptr || writes == nullptr) return false;
    const ptx::Operand* const read = AddressOf(*reads);
    const ptx::Operand* const written = AddressOf(*writes);
    known->second = read != nullptr && written != nullptr && SameAddress(*read, *written) &&
                    FlowsInto(source, *reads, *writes);
    return known->second;
  }
  return false;
}

bool RaceCheck::ComparesFloats(const WarpAccess& access) {
  const auto [known, is_new] = compares_floats_.emplace(access.in, false);
  if (!is_new) return known->second;
  const ptx::Function& source = launch_.program->Source(*access.function);
  const ptx::Instruction* const in =
      InstructionAt(source, access.function->statements[access.statement]);
  if (in == nullptr || in->operands.empty()) return false;
  const ptx::Operand& operand = in->operands.back();
  known->second = operand.IsRegister() && HoldsFloatBits(source, operand.reg);
  return known->second;
}

// The access of the cell that shows that it holds a float; null if there is none.
const Record* RaceCheck::FloatAccess(const Cell& cell) const {
  const auto is_float = [&](const Record& record) {
    const std::string& text = checks_.sites()[memory_[record.descriptor()].site].instruction;
    const size_t blank = text.find(' ');
    const std::string_view opcode = std::string_view(text).substr(0, blank);
    return record.mask() != 0 && (opcode.ends_with(".f32") || opcode.ends_with(".f64"));
  };
  for (const Record* record : {&cell.write, &cell.read}) {
    if (is_float(*record)) return record;
  }
  if (cell.more == nullptr) return nullptr;
  for (const RecordSet* set : {&cell.more->writes, &cell.more->reads, &cell.more->strong_writes,
                               &cell.more->strong_reads}) {
    for (const Record& record : set->records()) {
      if (is_float(record)) return &record;
    }
  }
  return nullptr;
}

void RaceCheck::CheckFloatOrder(const WarpAccess& access, const Target& target, uint32_t lane,
                                ActorId actor, DescriptorId descriptor) {
  if (access.in == nullptr || access.in->op != Op::kAtomic) return;
  const AtomicAccess& atomic = *access.in->fn.atomic;
  if (atomic.operation != AtomicOp::kMax && atomic.operation != AtomicOp::kMin) return;
  const bool is_signed = atomic.type == ScalarType::kS32 || atomic.type == ScalarType::kS64;
  if (!is_signed && atomic.type != ScalarType::kU32 && atomic.type != ScalarType::kU64) return;
  const uint32_t bytes = 1u << atomic.memory.element_shift;
  const auto read = [&](const std::byte* from) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (bytes == sizeof(wide)) {
      std::memcpy(&wide, from, sizeof(wide));
      return wide;
    }
    std::memcpy(&narrow, from, sizeof(narrow));
    return int64_t{narrow} << 32;
  };
  const std::byte* const operand =
      Machine::At(*access.frame, atomic.operand[0]) + size_t{lane} * bytes;
  const int64_t old = read(access.pointers[lane]), value = read(operand);
  // The sign bit alone is minus zero.
  if (old >= 0 || old == INT64_MIN || old == value) return;
  if (is_signed != (value < 0)) return;
  const Cell& cell = target.cells->CellAt(target.cells->At(target.address), target.address);
  const Record* const evidence = FloatAccess(cell);
  if (evidence == nullptr && !ComparesFloats(access)) return;
  RaceReport& report = reports_[{descriptor, descriptor, 0, false}];
  if (report.kind != 0) {
    ++report.count;
    return;
  }
  report.kind = static_cast<uint32_t>(RaceKind::kAtomics);
  report.pattern = atomic.operation == AtomicOp::kMax ? "float maximum by integer atomic"
                                                      : "float minimum by integer atomic";
  report.address = target.address;
  report.bytes = bytes;
  const auto fill = [&](AccessReport& side, const std::byte* from) {
    side.address = target.address;
    side.bytes = bytes;
    side.value.resize(bytes);
    std::memcpy(side.value.data(), from, bytes);
  };
  report.second = memory_.ReportOf({actor, 1u << lane, 1, descriptor << Record::kShift});
  fill(report.second, operand);
  report.first = evidence == nullptr ? report.second : memory_.ReportOf(*evidence);
  fill(report.first, access.pointers[lane]);
}

}  // namespace ops_debug::emulator
