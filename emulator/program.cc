// Loads a module: names every function and variable, places variables in device memory, lays out
// each kernel's shared memory and decodes the code.
#include "emulator/program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include "emulator/fault_text.h"
#include "ptx/parser.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kRecursionLocalBytes =
    64 * 1024;  // per thread, when the depth of calls is not known
constexpr uint64_t kLocalSlackBytes =
    512;  // hardware does not notice small overflows of local memory

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return alignment <= 1 ? value : (value + alignment - 1) / alignment * alignment;
}

Builtin FindBuiltin(std::string_view name) {
  if (name == "vprintf") return Builtin::kPrintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  if (name == "free") return Builtin::kFree;
  if (name == "cudaGraphSetConditional") return Builtin::kSetConditional;
  return Builtin::kUnknown;
}

bool IsExtern(const ptx::Variable& variable) {
  return std::find(variable.linkage.begin(), variable.linkage.end(), ".extern") !=
         variable.linkage.end();
}

// What one function mentions: callees, functions whose address it takes, shared variables.
struct Mentions {
  std::unordered_set<uint32_t> functions;
  std::unordered_set<uint32_t> shared;
  bool calls_indirectly = false;
  bool has_alloca = false;
  bool uses_reserved_shared = false;
};

class Loader {
 public:
  Loader(Program::Impl& program, const Program::VariablePlaces& places)
      : program_(program), places_(places) {}

  ptx::Result<bool> Load() {
    NameFunctions();
    if (auto result = DeclareVariables(); !result.ok()) return result;
    if (auto result = Initialize(); !result.ok()) return result;
    for (uint32_t i = 0; i < program_.functions.size(); ++i) mentions_.push_back(FindMentions(i));
    MakeKernels();
    Decode();
    for (auto& kernel : program_.kernels) MeasureLocal(*kernel);
    return true;
  }

 private:
  void NameFunctions() {
    for (const ptx::Item& item : program_.module.items) {
      const auto* source = std::get_if<ptx::Function>(&item);
      if (source == nullptr) continue;
      const auto [known, is_new] = program_.function_index.try_emplace(
          source->name, static_cast<uint32_t>(program_.functions.size()));
      if (is_new) program_.functions.push_back(std::make_unique<Function>());
      Function& function = *program_.functions[known->second];
      if (!is_new && !source->has_body) continue;
      function.name = std::string(source->name);
      function.is_entry = source->is_entry;
      function.has_body = source->has_body;
      function.builtin = source->has_body ? Builtin::kNone : FindBuiltin(source->name);
      function.source = source;
    }
    NameAliases();
  }

  // `.alias fA, fB;`: both names stand for the function fB (PTX ISA 9.0, section 11.7).
  void NameAliases() {
    for (const ptx::Item& item : program_.module.items) {
      const auto* raw = std::get_if<ptx::RawDirective>(&item);
      if (raw == nullptr || !raw->text.starts_with(".alias")) continue;
      std::string_view text = raw->text.substr(6);
      const auto take = [&text] {
        text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n,"), text.size()));
        const size_t end = std::min(text.find_first_of(" \t\r\n,;"), text.size());
        const std::string_view name = text.substr(0, end);
        text.remove_prefix(end);
        return name;
      };
      const std::string_view alias = take();
      const auto aliasee = program_.function_index.find(take());
      if (aliasee != program_.function_index.end())
        program_.function_index[alias] = aliasee->second;
    }
  }

  ptx::Result<bool> DeclareVariables() {
    for (const ptx::Item& item : program_.module.items) {
      if (const auto* variable = std::get_if<ptx::Variable>(&item)) {
        for (const ptx::Variable::Name& name : variable->names) {
          Symbol symbol;
          if (auto result = Declare(*variable, name, symbol); !result.ok()) return result;
          if (symbol.kind == Symbol::Kind::kNone) continue;
          program_.module_symbols[name.text] = symbol;
          if (symbol.kind == Symbol::Kind::kAddress) {
            program_.variables[std::string(name.text)] = {symbol.value, symbol.size_bytes};
          }
        }
      } else if (const auto* function = std::get_if<ptx::Function>(&item)) {
        if (auto result = DeclareInBody(*function); !result.ok()) return result;
      }
    }
    return true;
  }

  ptx::Result<bool> DeclareInBody(const ptx::Function& function) {
    for (const ptx::Statement& statement : function.body) {
      const auto* variable = std::get_if<ptx::Variable>(&statement);
      if (variable == nullptr) continue;
      for (const ptx::Variable::Name& name : variable->names) {
        Symbol symbol;
        if (auto result = Declare(*variable, name, symbol); !result.ok()) return result;
        if (symbol.kind != Symbol::Kind::kNone) program_.body_variables[&name] = symbol;
      }
    }
    return true;
  }

  ptx::Result<bool> Declare(const ptx::Variable& variable, const ptx::Variable::Name& name,
                            Symbol& symbol) {
    const bool is_shared = variable.space == ".shared";
    const bool is_const = variable.space == ".const";
    if (!is_shared && !is_const && variable.space != ".global") return true;
    uint64_t size_bytes = ptx::VariableSizeBytes(variable, name);
    const uint32_t alignment_bytes = std::max<uint32_t>(ptx::VariableAlignmentBytes(variable), 1);
    const bool is_unsized = !name.dims.empty() && name.dims[0].empty();
    symbol.is_const = is_const;
    if (is_shared) {
      symbol.kind = Symbol::Kind::kShared;
      symbol.value = program_.shared_variables.size();
      symbol.size_bytes = size_bytes;
      // .extern .shared x[]: the memory that the launch adds.
      const bool is_dynamic = is_unsized || (IsExtern(variable) && size_bytes == 0);
      program_.shared_variables.push_back(
          {std::string(name.text), is_dynamic ? 0 : size_bytes, alignment_bytes, is_dynamic});
      return true;
    }
    if (is_unsized)
      size_bytes = ptx::TypeSizeBytes(variable.type) * CountInitializers(name.initializer);
    if (ptx::TypeSizeBytes(variable.type) == 0)
      size_bytes = 64;  // texture, sampler and surface references: opaque
    if (IsExtern(variable)) {
      // A definition in this module wins; without one the first use fails.
      return true;
    }
    if (size_bytes == 0) size_bytes = 1;
    symbol.kind = Symbol::Kind::kAddress;
    symbol.size_bytes = size_bytes;
    const auto place = places_.find(name.text);
    if (place == places_.end()) {
      symbol.value = program_.memory.Allocate(size_bytes);
    } else if (program_.memory.Adopt(place->second, size_bytes)) {
      symbol.value = place->second;
    }
    if (symbol.value == 0) {
      return ptx::Diagnostic{ptx::Diagnostic::Code::kInvalid, variable.position.line,
                             variable.position.column,
                             "no device memory left for variable " + std::string(name.text) + " (" +
                                 std::to_string(size_bytes) + " bytes)",
                             "free allocations, or give the process more address space"};
    }
    program_.allocations.push_back(symbol.value);
    std::memset(reinterpret_cast<void*>(symbol.value), 0, size_bytes);
    if (!name.initializer.empty()) initialized_.push_back({&variable, &name, symbol});
    return true;
  }

  // After all names have addresses, because initialisers may hold them.
  ptx::Result<bool> Initialize() {
    for (const auto& [variable, name, symbol] : initialized_) {
      std::string reason;
      if (!ApplyInitializer(program_, *variable, *name, reinterpret_cast<std::byte*>(symbol.value),
                            symbol.size_bytes, &reason)) {
        return ptx::Diagnostic{ptx::Diagnostic::Code::kUnsupported, variable->position.line,
                               variable->position.column,
                               "initialiser of " + std::string(name->text) + ": " + reason, ""};
      }
      NoteFunctionsIn(name->initializer);
    }
    return true;
  }

  // Functions in tables can be called by anybody.
  void NoteFunctionsIn(std::string_view initializer) {
    const auto is_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '$' || c == '%';
    };
    for (size_t i = 0; i < initializer.size();) {
      size_t end = i;
      while (end < initializer.size() && is_name(initializer[end])) ++end;
      const auto found = program_.function_index.find(initializer.substr(i, end - i));
      if (found != program_.function_index.end()) address_taken_.insert(found->second);
      i = std::max(end, i + 1);
    }
  }

  void MentionSymbol(std::string_view name,
                     const std::unordered_map<std::string_view, Symbol>& body, bool is_callee,
                     Mentions& mentions) {
    const Symbol* symbol = nullptr;
    if (const auto local = body.find(name); local != body.end()) {
      symbol = &local->second;
    } else if (const auto found = program_.module_symbols.find(name);
               found != program_.module_symbols.end()) {
      symbol = &found->second;
    }
    if (symbol != nullptr) {
      if (symbol->kind == Symbol::Kind::kShared)
        mentions.shared.insert(static_cast<uint32_t>(symbol->value));
      return;
    }
    if (const auto function = program_.function_index.find(name);
        function != program_.function_index.end()) {
      mentions.functions.insert(function->second);
      if (!is_callee) address_taken_.insert(function->second);
    }
  }

  void MentionOperand(const ptx::Operand& operand,
                      const std::unordered_map<std::string_view, Symbol>& body, bool is_call,
                      Mentions& mentions) {
    if (operand.kind == ptx::Operand::Kind::kSpecialRegister &&
        operand.text.starts_with("%reserved_smem_offset"))
      mentions.uses_reserved_shared = true;
    if (operand.kind == ptx::Operand::Kind::kSymbol)
      MentionSymbol(operand.text, body, is_call, mentions);
    for (const ptx::Operand& child : operand.children)
      MentionOperand(child, body, is_call, mentions);
  }

  Mentions FindMentions(uint32_t index) {
    Mentions mentions;
    const ptx::Function& source = program_.Source(*program_.functions[index]);
    std::unordered_map<std::string_view, Symbol> body;
    for (const ptx::Statement& statement : source.body) {
      if (const auto* variable = std::get_if<ptx::Variable>(&statement)) {
        for (const ptx::Variable::Name& name : variable->names) {
          const auto known = program_.body_variables.find(&name);
          if (known == program_.body_variables.end()) continue;
          body[name.text] = known->second;
          // The memory belongs to the function whether the code uses it or not.
          if (known->second.kind == Symbol::Kind::kShared)
            mentions.shared.insert(static_cast<uint32_t>(known->second.value));
        }
        continue;
      }
      const auto* instruction = std::get_if<ptx::Instruction>(&statement);
      if (instruction == nullptr) continue;
      const bool is_call = instruction->opcode == "call";
      if (instruction->opcode == "alloca") mentions.has_alloca = true;
      for (const ptx::Operand& operand : instruction->operands) {
        if (is_call && operand.IsRegister()) mentions.calls_indirectly = true;
        MentionOperand(operand, body, is_call, mentions);
      }
    }
    return mentions;
  }

  // Functions that `entry` may reach. `unbounded` is set if calls are indirect.
  std::vector<uint32_t> Reach(uint32_t entry, bool* unbounded) const {
    std::vector<uint32_t> reached{entry};
    std::unordered_set<uint32_t> seen{entry};
    const auto add = [&](uint32_t function) {
      if (seen.insert(function).second) reached.push_back(function);
    };
    for (size_t i = 0; i < reached.size(); ++i) {
      const Mentions& mentions = mentions_[reached[i]];
      for (uint32_t function : mentions.functions) add(function);
      if (mentions.has_alloca) *unbounded = true;
      if (mentions.calls_indirectly) {
        *unbounded = true;
        for (uint32_t function : address_taken_) add(function);
      }
    }
    return reached;
  }

  void MakeKernels() {
    for (uint32_t i = 0; i < program_.functions.size(); ++i) {
      if (!program_.functions[i]->is_entry || !program_.functions[i]->has_body) continue;
      auto kernel = std::make_unique<Kernel>();
      kernel->function = i;
      const ptx::Function& source = program_.Source(*program_.functions[i]);
      for (const ptx::ParameterLayout& parameter : ptx::LayoutParameters(source)) {
        kernel->attributes.parameter_offsets.push_back(parameter.offset_bytes);
        kernel->attributes.parameter_sizes.push_back(parameter.size_bytes);
        kernel->attributes.parameter_bytes = parameter.offset_bytes + parameter.size_bytes;
      }
      kernel->attributes.max_threads_per_block = MaxThreads(source);
      ReadClusterDirectives(source, &kernel->attributes);
      PlaceShared(*kernel);
      program_.kernels.push_back(std::move(kernel));
    }
  }

  // .reqnctapercluster nx, ny, nz; .explicitcluster; .maxclusterrank n.
  static void ReadClusterDirectives(const ptx::Function& source, KernelAttributes* attributes) {
    for (std::string_view directive : source.directives) {
      uint32_t numbers[3] = {0, 1, 1};
      size_t count = 0;
      bool in_number = false;
      for (const char c : directive) {
        const bool digit = c >= '0' && c <= '9';
        if (digit && !in_number && count < 3) numbers[count++] = 0;
        if (digit) numbers[count - 1] = numbers[count - 1] * 10 + static_cast<uint32_t>(c - '0');
        in_number = digit;
      }
      if (directive.starts_with(".reqnctapercluster"))
        attributes->required_cluster = {numbers[0], numbers[1], numbers[2]};
      if (directive.starts_with(".explicitcluster")) attributes->cluster_must_be_set = true;
      if (directive.starts_with(".maxclusterrank")) attributes->max_cluster_rank = numbers[0];
    }
  }

  // ".maxntid 256, 1, 1" or ".reqntid ...".
  static uint32_t MaxThreads(const ptx::Function& source) {
    for (std::string_view directive : source.directives) {
      if (!directive.starts_with(".maxntid") && !directive.starts_with(".reqntid")) continue;
      uint64_t product = 1;
      uint64_t number = 0;
      bool in_number = false;
      for (size_t i = 8; i <= directive.size(); ++i) {
        const bool digit = i < directive.size() && directive[i] >= '0' && directive[i] <= '9';
        if (digit) number = number * 10 + static_cast<uint64_t>(directive[i] - '0');
        if (!digit && in_number) {
          product *= number;
          number = 0;
        }
        in_number = digit;
      }
      return static_cast<uint32_t>(std::clamp<uint64_t>(product, 1, 1024));
    }
    return 1024;
  }

  void PlaceShared(Kernel& kernel) {
    bool unbounded = false;
    std::vector<uint32_t> variables;
    for (uint32_t function : Reach(kernel.function, &unbounded)) {
      kernel.uses_reserved_shared =
          kernel.uses_reserved_shared || mentions_[function].uses_reserved_shared;
      variables.insert(variables.end(), mentions_[function].shared.begin(),
                       mentions_[function].shared.end());
    }
    std::sort(variables.begin(), variables.end());  // in order of declaration
    variables.erase(std::unique(variables.begin(), variables.end()), variables.end());
    kernel.shared_offsets.assign(program_.shared_variables.size(), ~0u);
    uint64_t offset = 0;
    uint64_t dynamic_alignment = 16;
    for (uint32_t id : variables) {
      const SharedVariable& variable = program_.shared_variables[id];
      if (variable.is_dynamic) {
        dynamic_alignment = std::max<uint64_t>(dynamic_alignment, variable.alignment_bytes);
        continue;
      }
      offset = AlignUp(offset, variable.alignment_bytes);
      kernel.shared_offsets[id] = static_cast<uint32_t>(offset);
      offset += variable.size_bytes;
    }
    kernel.attributes.static_shared_bytes = static_cast<uint32_t>(offset);
    kernel.dynamic_shared_offset = static_cast<uint32_t>(AlignUp(offset, dynamic_alignment));
    for (uint32_t id : variables) {
      if (program_.shared_variables[id].is_dynamic)
        kernel.shared_offsets[id] = kernel.dynamic_shared_offset;
    }
  }

  void Decode() {
    std::vector<const Kernel*> kernel_of(program_.functions.size(), nullptr);
    for (const auto& kernel : program_.kernels) kernel_of[kernel->function] = kernel.get();
    for (uint32_t i = 0; i < program_.functions.size(); ++i) {
      Function& function = *program_.functions[i];
      if (function.has_body)
        DecodeFunction(program_, program_.Source(function), kernel_of[i], function);
    }
  }

  // Bytes of local memory along the deepest chain of calls from `function`; ~0 for recursion.
  uint64_t DeepestLocal(uint32_t function) {
    auto [known, is_new] =
        deepest_local_.try_emplace(function, ~0ull);  // met again below: recursion
    if (!is_new) return known->second;
    uint64_t deepest = 0;
    for (uint32_t callee : mentions_[function].functions) {
      const uint64_t below = DeepestLocal(callee);
      if (below == ~0ull) return ~0ull;
      deepest = std::max(deepest, below);
    }
    return deepest_local_[function] = deepest + program_.functions[function]->local_bytes;
  }

  void MeasureLocal(Kernel& kernel) {
    bool unbounded = false;
    Reach(kernel.function, &unbounded);
    const uint64_t deepest = unbounded ? ~0ull : DeepestLocal(kernel.function);
    kernel.attributes.local_bytes = program_.functions[kernel.function]->local_bytes;
    kernel.local_limit_bytes = deepest == ~0ull ? kRecursionLocalBytes
                               : deepest == 0
                                   ? 0
                                   : AlignUp(deepest, kLocalSlackBytes) + kLocalSlackBytes;
  }

  struct Initialized {
    const ptx::Variable* variable;
    const ptx::Variable::Name* name;
    Symbol symbol;
  };
  Program::Impl& program_;
  const Program::VariablePlaces& places_;
  std::vector<Initialized> initialized_;
  std::unordered_map<uint32_t, uint64_t> deepest_local_;
  std::vector<Mentions> mentions_;
  std::unordered_set<uint32_t> address_taken_;
};

}  // namespace

Program::Impl::~Impl() {
  for (uint64_t address : allocations) memory.Free(address);
}

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;

ptx::Result<std::unique_ptr<Program>> Program::Load(std::string_view ptx, DeviceMemory& memory,
                                                    const VariablePlaces& places) {
  static std::atomic<uint32_t> next_serial{0};
  auto parsed = ptx::Parse(std::string(ptx));
  if (!parsed.ok()) return parsed.error();
  auto impl = std::make_unique<Impl>(memory);
  impl->module = std::move(parsed).value();
  impl->serial = next_serial.fetch_add(1) & 0xffff;
  Loader loader(*impl, places);
  if (auto result = loader.Load(); !result.ok()) return result.error();
  return std::unique_ptr<Program>(new Program(std::move(impl)));
}

const Kernel* Program::FindKernel(std::string_view name) const {
  for (const auto& kernel : impl_->kernels) {
    if (impl_->functions[kernel->function]->name == name) return kernel.get();
  }
  return nullptr;
}

std::vector<std::string> Program::KernelNames() const {
  std::vector<std::string> names;
  for (const auto& kernel : impl_->kernels)
    names.push_back(impl_->functions[kernel->function]->name);
  return names;
}

std::vector<std::string> Program::UnsupportedInstructions() const {
  std::vector<std::string> places;
  for (const auto& function : impl_->functions) {
    for (const Instruction& in : function->code) {
      if (in.op == Op::kUnsupported)
        places.push_back(DescribePlace(*impl_, *function, in.statement));
    }
  }
  return places;
}

const KernelAttributes& Program::Attributes(const Kernel& kernel) const {
  return kernel.attributes;
}

std::string_view Program::Target() const {
  const auto& targets = impl_->module.targets;
  return targets.empty() ? std::string_view() : targets.front();
}

bool Program::FindVariable(std::string_view name, uint64_t* address, uint64_t* size_bytes) const {
  const auto found = impl_->variables.find(name);
  if (found == impl_->variables.end()) return false;
  if (address != nullptr) *address = found->second.address;
  if (size_bytes != nullptr) *size_bytes = found->second.size_bytes;
  return true;
}

}  // namespace ops_debug::emulator
