// Names are fixed first, bodies copied after, because functions refer to each other in any order.
#include "shadow/passes/make_twins.h"

#include <cctype>
#include <charconv>
#include <set>
#include <string>

#include "ptx/parser.h"
#include "shadow/abi/device_abi.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Variable;

// Index of the callee operand: call {(results),} callee {, (arguments)} {, prototype}.
size_t CalleeIndex(const Instruction& call) {
  return !call.operands.empty() && call.operands[0].kind == Operand::Kind::kList ? 1 : 0;
}

void CollectSymbols(const Operand& operand, std::set<std::string_view>& symbols) {
  if (operand.kind == Operand::Kind::kSymbol) symbols.insert(operand.text);
  for (const Operand& child : operand.children) CollectSymbols(child, symbols);
}

// Names that occur anywhere but as a direct callee.
std::set<std::string_view> AddressTakenNames(const ptx::Module& module) {
  std::set<std::string_view> names;
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr) continue;
    for (const ptx::Statement& statement : function->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      for (size_t i = 0; i < instruction->operands.size(); i++) {
        if (instruction->Is("call") && i == CalleeIndex(*instruction)) continue;
        CollectSymbols(instruction->operands[i], names);
      }
    }
  }
  return names;
}

bool InitializerMentions(const ptx::Module& module, std::string_view name) {
  for (const ptx::Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable == nullptr) continue;
    for (const Variable::Name& declared : variable->names) {
      if (declared.initializer.find(name) != std::string_view::npos) return true;
    }
  }
  return false;
}

Variable MakeParameter(std::string_view name, std::string_view type, std::string_view alignment,
                       std::string_view bytes) {
  Variable parameter;
  parameter.space = ".param";
  parameter.alignment = alignment;
  parameter.type = type;
  Variable::Name declared;
  declared.text = name;
  if (!bytes.empty()) declared.dims.push_back(bytes);
  parameter.names.push_back(std::move(declared));
  return parameter;
}

class TwinMaker {
 public:
  TwinMaker(ptx::Module& module, bool with_race_thread)
      : module_(module),
        with_race_thread_(with_race_thread),
        address_taken_(AddressTakenNames(module)) {}

  ptx::Result<std::vector<Twin>> Run() {
    std::vector<const Function*> functions, entries;
    for (const ptx::Item& item : module_.items) {
      const auto* function = std::get_if<Function>(&item);
      // The device part of the checks (slow_path.cu) stays as it is.
      if (function == nullptr || !function->has_body || function->name.starts_with("__ops_debug_"))
        continue;
      (function->is_entry ? entries : functions).push_back(function);
    }
    // Names first: bodies refer to each other in any order, also recursively.
    for (const Function* function : functions) {
      const bool is_pointer_target =
          address_taken_.contains(function->name) || InitializerMentions(module_, function->name);
      const std::string_view name = module_.Intern(TwinName(function->name));
      names_[function->name] = {name, is_pointer_target
                                          ? std::string_view()
                                          : module_.Intern(std::string(name) + "_launch")};
    }
    for (const Function* function : functions) Declare(*function);
    std::vector<Twin> twins;
    for (const Function* function : functions) {
      if (auto error = Append(*function, names_[function->name], &twins); !error.ok())
        return error.error();
    }
    for (const Function* entry : entries) {
      const std::vector<ptx::ParameterLayout> layout = ptx::LayoutParameters(*entry);
      const uint32_t used =
          layout.empty() ? 0 : layout.back().offset_bytes + layout.back().size_bytes;
      if ((used + 7) / 8 * 8 + sizeof(LaunchHeader) > ParameterSpaceBytes(module_)) continue;
      const std::string_view name = module_.Intern(TwinName(entry->name));
      const Name names{name, module_.Intern(std::string(name) + "_launch")};
      if (auto error = Append(*entry, names, &twins); !error.ok()) return error.error();
    }
    return twins;
  }

 private:
  struct Name {
    std::string_view twin;
    std::string_view launch_parameter;
  };

  Function Signature(const Function& original, const Name& name) {
    Function twin = original;
    twin.name = name.twin;
    twin.has_parameter_list |= !name.launch_parameter.empty();
    if (!name.launch_parameter.empty()) {
      // An entry's launch parameter gets its size when its slots are known (AddMemoryChecks).
      twin.parameters.push_back(original.is_entry
                                    ? MakeParameter(name.launch_parameter, ".b8", "8", "8")
                                    : MakeParameter(name.launch_parameter, ".b64", "", ""));
      if (with_race_thread_ && !original.is_entry)
        twin.parameters.push_back(MakeParameter(RaceParameter(name), ".b64", "", ""));
    }
    return twin;
  }

  void Declare(const Function& original) {
    Function declaration = Signature(original, names_[original.name]);
    declaration.has_body = false;
    declaration.body.clear();
    module_.items.emplace_back(std::move(declaration));
  }

  ptx::Result<bool> Append(const Function& original, const Name& name, std::vector<Twin>* twins) {
    module_.items.emplace_back(Signature(original, name));
    Function& twin = std::get<Function>(module_.items.back());
    auto head = ptx::ParseStatements(
        module_, twin,
        ".reg .b64 " + std::string(kLaunchIdRegister) + ";\n" + LoadLaunchId(name) +
            (with_race_thread_ ? LoadRaceThread(name, original.is_entry) : ""));
    if (!head.ok()) return head.error();
    std::vector<ptx::Statement> body = std::move(head).value();
    for (ptx::Statement& statement : twin.body) {
      auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction != nullptr) {
        if (auto error = Redirect(*instruction, twin, &body); !error.ok()) return error.error();
      }
      if (auto* directive = std::get_if<ptx::RawDirective>(&statement)) RedirectTargets(*directive);
      body.push_back(std::move(statement));
    }
    twin.body = std::move(body);
    twins->push_back({&original, &twin, name.launch_parameter});
    return true;
  }

  static std::string LoadLaunchId(const Name& name) {
    if (name.launch_parameter.empty()) return "mov.u64 " + std::string(kLaunchIdRegister) + ", 0;";
    return "ld.param.u64 " + std::string(kLaunchIdRegister) + ", [" +
           std::string(name.launch_parameter) + "];";
  }

  std::string_view RaceParameter(const Name& name) {
    return module_.Intern(std::string(name.launch_parameter) + "_race");
  }

  // An entry makes its own (AddRaceChecks).
  std::string LoadRaceThread(const Name& name, bool is_entry) {
    const std::string reg(kRaceThreadRegister);
    if (is_entry || name.launch_parameter.empty())
      return "\n.reg .b64 " + reg + ";\nmov.u64 " + reg + ", 0;";
    return "\n.reg .b64 " + reg + ";\nld.param.u64 " + reg + ", [" +
           std::string(RaceParameter(name)) + "];";
  }

  // ".calltargets f, g;" promises which functions an indirect call may reach. Through a register
  // come twins, through memory originals, so the twin's list names both.
  void RedirectTargets(ptx::RawDirective& directive) {
    const size_t list = directive.text.find(".calltargets");
    if (list == std::string_view::npos) return;
    std::string text(directive.text.substr(0, directive.text.rfind(';')));
    for (const auto& [original, name] : names_) {
      const size_t at = FindWord(directive.text.substr(list), original);
      if (at != std::string_view::npos) text += ", " + std::string(name.twin);
    }
    directive.text = module_.Intern(text + ";");
  }

  static size_t FindWord(std::string_view text, std::string_view word) {
    const auto is_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
    };
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !is_name(text[at - 1])) && (end == text.size() || !is_name(text[end])))
        return at;
    }
    return std::string_view::npos;
  }

  // Calls and addresses of functions that have a twin become those of the twin.
  ptx::Result<bool> Redirect(Instruction& instruction, Function& twin,
                             std::vector<ptx::Statement>* before) {
    std::vector<Operand> operands(instruction.operands.begin(), instruction.operands.end());
    bool changed = false;
    const bool is_call = instruction.Is("call");
    const size_t callee = is_call ? CalleeIndex(instruction) : ~size_t{0};
    for (size_t i = 0; i < operands.size(); i++) {
      if (operands[i].kind != Operand::Kind::kSymbol) continue;
      const auto found = names_.find(operands[i].text);
      if (found == names_.end()) continue;
      operands[i].text = found->second.twin;
      changed = true;
      if (i != callee || found->second.launch_parameter.empty()) continue;
      const std::string argument = "ods_arg" + std::to_string(argument_count_++);
      const auto pass = [&](const std::string& parameter, std::string_view value) {
        return ".param .b64 " + parameter + ";\nst.param.b64 [" + parameter + "], " +
               std::string(value) + ";\n";
      };
      auto store = ptx::ParseStatements(
          module_, twin,
          pass(argument, kLaunchIdRegister) +
              (with_race_thread_ ? pass(argument + "_race", kRaceThreadRegister) : ""));
      if (!store.ok()) return store.error();
      for (ptx::Statement& statement : store.value()) before->push_back(std::move(statement));
      Operand value;
      value.kind = Operand::Kind::kSymbol;
      value.text = module_.Intern(argument);
      const bool has_arguments =
          callee + 1 < operands.size() && operands[callee + 1].kind == Operand::Kind::kList;
      std::vector<Operand> arguments;
      if (has_arguments)
        arguments.assign(operands[callee + 1].children.begin(),
                         operands[callee + 1].children.end());
      arguments.push_back(value);
      if (with_race_thread_) {
        value.text = module_.Intern(argument + "_race");
        arguments.push_back(value);
      }
      Operand list;
      list.kind = Operand::Kind::kList;
      list.children = module_.Intern(arguments);
      if (has_arguments) {
        operands[callee + 1] = list;
      } else {
        operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(callee) + 1, list);
      }
    }
    if (changed) instruction.operands = module_.Intern(operands);
    return true;
  }

  ptx::Module& module_;
  const bool with_race_thread_;
  std::set<std::string_view> address_taken_;
  std::map<std::string_view, Name> names_;  // functions only
  int argument_count_ = 0;
};

}  // namespace

uint32_t ParameterSpaceBytes(const ptx::Module& module) {
  int major = 0, minor = 0;
  const std::string_view text = module.version;
  const auto [dot, error] = std::from_chars(text.data(), text.data() + text.size(), major);
  if (dot != text.data() + text.size()) std::from_chars(dot + 1, text.data() + text.size(), minor);
  return major > 8 || (major == 8 && minor >= 1) ? 32764 : 4096;
}

ptx::Result<std::vector<Twin>> MakeTwins(ptx::Module& module, bool with_race_thread) {
  return TwinMaker(module, with_race_thread).Run();
}

}  // namespace ops_debug::shadow
