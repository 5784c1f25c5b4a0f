// The decoder's walk over a function body: scopes, labels, variables and the table of opcodes.
#include <algorithm>
#include <cstdlib>

#include "emulator/decoder.h"
#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {
namespace {

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return alignment <= 1 ? value : (value + alignment - 1) / alignment * alignment;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\n'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

bool NamesToolRegister(std::span<const ptx::Operand> operands) {
  return std::any_of(operands.begin(), operands.end(), [](const ptx::Operand& operand) {
    return operand.text.starts_with(shadow::kToolRegisterPrefix) ||
           NamesToolRegister(operand.children);
  });
}

// What instrumentation has added.
bool IsToolCode(const ptx::Function& function, const ptx::Instruction& instruction) {
  return function.name.starts_with(shadow::kToolFunctionPrefix) ||
         instruction.guard.text.starts_with(shadow::kToolRegisterPrefix) ||
         NamesToolRegister(instruction.operands);
}

}  // namespace

Decoder::Decoder(const Program::Impl& program, const ptx::Function& source, const Kernel* kernel,
                 Function& out)
    : program_(program), source_(source), kernel_(kernel), out_(out), lanes_(SelectLanes()) {
  scopes_.emplace_back();
}

const std::unordered_map<std::string_view, Decoder::Method>& Decoder::Methods() {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"add", &Decoder::AddSub},
      {"sub", &Decoder::AddSub},
      {"addc", &Decoder::AddSub},
      {"subc", &Decoder::AddSub},
      {"mul", &Decoder::Multiply},
      {"mul24", &Decoder::IntegerSimple},
      {"mad", &Decoder::MultiplyAdd},
      {"madc", &Decoder::MultiplyAdd},
      {"fma", &Decoder::FusedMultiplyAdd},
      {"div", &Decoder::Divide},
      {"rem", &Decoder::IntegerSimple},
      {"sad", &Decoder::IntegerSimple},
      {"dp4a", &Decoder::IntegerSimple},
      {"dp2a", &Decoder::IntegerSimple},
      {"min", &Decoder::MinMax},
      {"max", &Decoder::MinMax},
      {"neg", &Decoder::NegateAbs},
      {"abs", &Decoder::NegateAbs},
      {"rcp", &Decoder::FloatFunction},
      {"sqrt", &Decoder::FloatFunction},
      {"rsqrt", &Decoder::FloatFunction},
      {"ex2", &Decoder::FloatFunction},
      {"lg2", &Decoder::FloatFunction},
      {"sin", &Decoder::FloatFunction},
      {"cos", &Decoder::FloatFunction},
      {"tanh", &Decoder::FloatFunction},
      {"copysign", &Decoder::CopySign},
      {"testp", &Decoder::TestProperty},
      {"and", &Decoder::Logic},
      {"or", &Decoder::Logic},
      {"xor", &Decoder::Logic},
      {"not", &Decoder::Logic},
      {"cnot", &Decoder::Logic},
      {"shl", &Decoder::Shift},
      {"shr", &Decoder::Shift},
      {"shf", &Decoder::FunnelShift},
      {"clz", &Decoder::BitCount},
      {"popc", &Decoder::BitCount},
      {"brev", &Decoder::BitCount},
      {"bfind", &Decoder::BitCount},
      {"bfe", &Decoder::BitField},
      {"bfi", &Decoder::BitField},
      {"bmsk", &Decoder::BitField},
      {"szext", &Decoder::BitField},
      {"fns", &Decoder::BitField},
      {"lop3", &Decoder::Lop3},
      {"prmt", &Decoder::Permute},
      {"setp", &Decoder::SetPredicate},
      {"set", &Decoder::Set},
      {"selp", &Decoder::Select},
      {"slct", &Decoder::Slct},
      {"mov", &Decoder::Move},
      {"cvt", &Decoder::Convert},
      {"cvta", &Decoder::ConvertAddress},
      {"isspacep", &Decoder::IsSpace},
      {"ld", &Decoder::Load},
      {"ldu", &Decoder::Load},
      {"st", &Decoder::Store},
      {"atom", &Decoder::Atomic},
      {"red", &Decoder::Atomic},
      {"cp", &Decoder::CopyAsync},
      {"bra", &Decoder::Branch},
      {"brx", &Decoder::BranchIndexed},
      {"call", &Decoder::Call},
      {"ret", &Decoder::Return},
      {"exit", &Decoder::Exit},
      {"trap", &Decoder::Trap},
      {"bar", &Decoder::Barrier},
      {"barrier", &Decoder::Barrier},
      {"shfl", &Decoder::Shuffle},
      {"vote", &Decoder::Vote},
      {"match", &Decoder::Match},
      {"redux", &Decoder::Redux},
      {"activemask", &Decoder::ActiveMask},
      {"elect", &Decoder::Elect},
      {"membar", &Decoder::Fence},
      {"fence", &Decoder::Fence},
      {"nanosleep", &Decoder::Nanosleep},
      {"prefetch", &Decoder::Nothing},
      {"prefetchu", &Decoder::Nothing},
      {"applypriority", &Decoder::Nothing},
      {"discard", &Decoder::Nothing},
      {"griddepcontrol", &Decoder::GridDependency},
      {"setmaxnreg", &Decoder::Nothing},
      {"pmevent", &Decoder::Nothing},
      {"brkpt", &Decoder::Nothing},
      {"createpolicy", &Decoder::CreatePolicy},
      {"mad24", &Decoder::IntegerSimple},
      {"alloca", &Decoder::Alloca},
      {"stacksave", &Decoder::StackSave},
      {"stackrestore", &Decoder::StackRestore},
      // decode_texture.cc
      {"tex", &Decoder::Texture},
      {"tld4", &Decoder::Texture},
      {"txq", &Decoder::ImageQuery},
      {"suq", &Decoder::ImageQuery},
      {"suld", &Decoder::Surface},
      {"sust", &Decoder::Surface},
      {"sured", &Decoder::Surface},
      // decode_matrix.cc
      {"ldmatrix", &Decoder::MatrixLoad},
      {"stmatrix", &Decoder::MatrixStore},
      {"movmatrix", &Decoder::MatrixMove},
      {"mma", &Decoder::MatrixMultiply},
      {"wmma", &Decoder::WarpMatrix},
      {"wgmma", &Decoder::Warpgroup},
      // decode_async.cc, decode_mbarrier.cc, cluster_address.cc
      {"mbarrier", &Decoder::Mbarrier},
      {"mapa", &Decoder::MapShared},
      {"getctarank", &Decoder::MapShared},
      {"tensormap", &Decoder::TensorMapReplace},
  };
  return kMethods;
}

void Decoder::Run() {
  register_refs_.assign(source_.registers.size(), kNoRef);
  carry_flag_ = TemporaryPredicate();
  for (ptx::RegisterId id = 0; id < source_.registers.size(); ++id)
    has_vectors_ = has_vectors_ || IsVectorRegister(id);
  DeclareParameters();
  KeepStack();
  for (const ptx::Statement& statement : source_.body) {
    if (const auto* instruction = std::get_if<ptx::Instruction>(&statement)) {
      DecodeStatement(*instruction);
    } else if (const auto* label = std::get_if<ptx::Label>(&statement)) {
      scopes_[scope_].labels[label->name] = static_cast<uint32_t>(out_.code.size());
      last_label_ = label->name;
    } else if (const auto* variable = std::get_if<ptx::Variable>(&statement)) {
      DeclareVariable(*variable);
    } else if (std::holds_alternative<ptx::BlockBegin>(statement)) {
      Scope inner;
      inner.parent = scope_;
      scopes_.push_back(std::move(inner));
      scope_ = static_cast<uint32_t>(scopes_.size() - 1);
    } else if (std::holds_alternative<ptx::BlockEnd>(statement)) {
      scope_ = scopes_[scope_].parent;
    } else if (const auto* raw = std::get_if<ptx::RawDirective>(&statement)) {
      if (raw->text.starts_with(".branchtargets")) scopes_[scope_].tables[last_label_] = raw->text;
    }
  }
  // Running off the end returns.
  GiveBackStack();
  Instruction& end = Emit(source_.is_entry ? Op::kExit : Op::kReturn);
  end.statement = out_.statements.empty() ? 0 : static_cast<uint32_t>(out_.statements.size() - 1);
  if (out_.statements.empty())
    out_.statements.push_back({source_.position.line, source_.position.column, 0});
  ResolveLabels();
  out_.frame_bytes =
      (frame_bytes_ + kLaneArrayAlignment - 1) & ~static_cast<uint32_t>(kLaneArrayAlignment - 1);
  // Lane arrays want their alignment, which a vector of bytes does not promise.
  const size_t size = out_.constants.size();
  out_.constants.resize(size + kLaneArrayAlignment);
  auto address = reinterpret_cast<uintptr_t>(out_.constants.data());
  const uintptr_t shift =
      (kLaneArrayAlignment - address % kLaneArrayAlignment) % kLaneArrayAlignment;
  std::move_backward(out_.constants.begin(), out_.constants.begin() + static_cast<ptrdiff_t>(size),
                     out_.constants.begin() + static_cast<ptrdiff_t>(size + shift));
  out_.constant_base = out_.constants.data() + shift;
  if (out_.local_bytes != 0 || !out_.calls.empty()) {
    out_.local_bytes =
        static_cast<uint32_t>(AlignUp(out_.local_bytes, 16) + (out_.is_entry ? 0 : kFrameGapBytes));
  }
  LayOutCode(out_);
}

uint32_t Decoder::AllocateLocal(uint64_t size_bytes, uint64_t alignment_bytes) {
  const uint64_t offset = AlignUp(out_.local_bytes, std::max<uint64_t>(alignment_bytes, 1));
  out_.local_bytes = static_cast<uint32_t>(offset + size_bytes);
  return static_cast<uint32_t>(offset);
}

Slot Decoder::ParameterSlot(const ptx::Variable& variable) {
  Slot slot;
  const ptx::Variable::Name& name = variable.names[0];
  if (variable.space == ".reg") {
    slot.is_register = true;
    for (ptx::RegisterId id = 0; id < source_.registers.size(); ++id) {
      if (source_.registers[id].name == name.text) {
        slot.ref = RegisterRef(id);
        slot.width = RegisterShift(id);
        return slot;
      }
    }
    slot.width = ShiftOf(ParseType(variable.type));
    slot.ref = Temporary(slot.width);
    return slot;
  }
  slot.bytes = static_cast<uint32_t>(ptx::VariableSizeBytes(variable, name));
  slot.offset =
      AllocateLocal(slot.bytes, std::max<uint32_t>(ptx::VariableAlignmentBytes(variable), 8));
  Symbol symbol;
  symbol.kind = Symbol::Kind::kLocal;
  symbol.value = slot.offset;
  symbol.size_bytes = slot.bytes;
  scopes_[0].symbols[name.text] = symbol;
  return slot;
}

void Decoder::DeclareParameters() {
  if (source_.is_entry) {
    for (const ptx::ParameterLayout& parameter : ptx::LayoutParameters(source_)) {
      Symbol symbol;
      symbol.kind = Symbol::Kind::kKernelParameter;
      symbol.value = parameter.offset_bytes;
      symbol.size_bytes = parameter.size_bytes;
      scopes_[0].symbols[parameter.name] = symbol;
    }
    return;
  }
  for (const ptx::Variable& result : source_.results) out_.results.push_back(ParameterSlot(result));
  for (const ptx::Variable& parameter : source_.parameters)
    out_.parameters.push_back(ParameterSlot(parameter));
}

void Decoder::DeclareVariable(const ptx::Variable& variable) {
  if (variable.space == ".reg") return;
  for (const ptx::Variable::Name& name : variable.names) {
    Symbol symbol;
    if (const auto known = program_.body_variables.find(&name);
        known != program_.body_variables.end()) {
      symbol = known->second;
      scopes_[scope_].symbols[name.text] = symbol;
      continue;
    }
    if (variable.space != ".local" && variable.space != ".param") continue;
    const uint64_t element = ptx::VariableSizeBytes(variable, name);
    const uint32_t alignment = ptx::VariableAlignmentBytes(variable);
    const uint32_t copies = std::max<uint32_t>(name.count, 1);
    for (uint32_t i = 0; i < copies; ++i) {
      symbol.kind = Symbol::Kind::kLocal;
      symbol.size_bytes = element;
      symbol.value =
          AllocateLocal(element, variable.space == ".param" ? std::max(alignment, 8u) : alignment);
      if (name.count == 0) scopes_[scope_].symbols[name.text] = symbol;
    }
  }
}

Symbol Decoder::FindSymbol(std::string_view name) const {
  for (uint32_t scope = scope_;; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].symbols.find(name);
    if (found != scopes_[scope].symbols.end()) return found->second;
    if (scope == 0) break;
  }
  const auto module_symbol = program_.module_symbols.find(name);
  if (module_symbol != program_.module_symbols.end()) return module_symbol->second;
  const auto function = program_.function_index.find(name);
  Symbol symbol;
  if (function != program_.function_index.end()) {
    symbol.kind = Symbol::Kind::kFunction;
    symbol.value = function->second;
  }
  return symbol;
}

void Decoder::DecodeStatement(const ptx::Instruction& instruction) {
  const auto statement = static_cast<uint32_t>(out_.statements.size());
  out_.statements.push_back({instruction.position.line, instruction.position.column,
                             instruction.loc, IsToolCode(source_, instruction)});
  const size_t first = out_.code.size();
  const size_t first_use = label_uses_.size();
  supported_ = true;
  Expanded expanded;
  const bool has_vectors = has_vectors_ && ExpandVectors(instruction, expanded);
  const auto method = Methods().find(instruction.opcode);
  if (method == Methods().end() ||
      !(this->*method->second)(has_vectors ? expanded.instruction : instruction) || !supported_) {
    out_.code.resize(first);
    label_uses_.resize(first_use);
    Emit(Op::kUnsupported);
  }
  if (out_.code.size() == first) Emit(Op::kNop);
  Ref guard = kNoRef;
  if (instruction.guard.Present()) guard = RegisterRef(instruction.guard.reg);
  for (size_t i = first; i < out_.code.size(); ++i) {
    out_.code[i].statement = statement;
    out_.code[i].guard = guard;
    out_.code[i].guard_flip = instruction.guard.negated ? ~0u : 0u;
  }
  out_.code.back().counted = 1;
}

void Decoder::ResolveLabels() {
  const auto find = [this](uint32_t scope, std::string_view name) -> int64_t {
    for (;; scope = scopes_[scope].parent) {
      const auto found = scopes_[scope].labels.find(name);
      if (found != scopes_[scope].labels.end()) return found->second;
      if (scope == 0) return -1;
    }
  };
  for (const LabelUse& use : label_uses_) {
    Instruction& in = out_.code[use.instruction];
    if (!use.is_table) {
      const int64_t target = find(use.scope, use.name);
      if (target < 0) {
        in.op = Op::kUnsupported;
      } else {
        in.target = static_cast<uint32_t>(target);
      }
      continue;
    }
    std::string_view text;
    for (uint32_t scope = use.scope;; scope = scopes_[scope].parent) {
      const auto found = scopes_[scope].tables.find(use.name);
      if (found != scopes_[scope].tables.end()) text = found->second;
      if (scope == 0 || !text.empty()) break;
    }
    auto* table = Own(out_.tables);
    table->index = in.a;
    in.fn.table = table;
    constexpr std::string_view kDirective = ".branchtargets";
    if (text.size() < kDirective.size()) {
      in.op = Op::kUnsupported;
      continue;
    }
    text.remove_prefix(kDirective.size());
    while (!text.empty()) {
      const size_t end = text.find_first_of(",;");
      const int64_t target = find(use.scope, Trim(text.substr(0, end)));
      if (target < 0) in.op = Op::kUnsupported;
      table->targets.push_back(static_cast<uint32_t>(std::max<int64_t>(target, 0)));
      if (end == std::string_view::npos || text[end] == ';') break;
      text.remove_prefix(end + 1);
    }
  }
}

void DecodeFunction(const Program::Impl& program, const ptx::Function& source, const Kernel* kernel,
                    Function& out) {
  Decoder(program, source, kernel, out).Run();
}

}  // namespace ops_debug::emulator
