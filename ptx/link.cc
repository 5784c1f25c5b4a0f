// The linker. Every input is parsed; a table of global names decides which definition of each stays
// (a strong one over `.common` and `.weak`, the larger of two `.common` ones, else the first);
// private names that collide get a suffix; `.file` numbers are made distinct; then everything is
// printed into one module: prototypes first, because PTX wants names declared before they are used.
// Rules: PTX ISA 9.0, sections 5.1.3, 11.6 (.extern, .visible, .weak, .common) and 11.7 (.alias).
#include "ptx/link.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "ptx/ir.h"
#include "ptx/parser.h"
#include "ptx/printer.h"

namespace ops_debug::ptx {
namespace {

// Provided by whoever runs the module.
constexpr std::string_view kBuiltins[] = {"vprintf", "__assertfail", "malloc", "free",
                                          "cudaGraphSetConditional"};

template <class List>
bool Contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

// Calls action(word) for every name in `text`; strings are skipped.
void ForEachWord(std::string_view text, const std::function<void(std::string_view)>& action) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      const size_t close = text.find('"', i + 1);
      if (close == std::string_view::npos) return;
      i = close + 1;
      continue;
    }
    size_t end = i;
    while (end < text.size() && IsNameCharacter(text[end])) ++end;
    if (end != i) action(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
}

enum class Linkage : uint8_t { kPrivate, kExtern, kWeak, kCommon, kVisible };

Linkage LinkageOf(const std::vector<std::string_view>& words) {
  if (Contains(words, ".extern")) return Linkage::kExtern;
  if (Contains(words, ".weak")) return Linkage::kWeak;
  if (Contains(words, ".common")) return Linkage::kCommon;
  return Contains(words, ".visible") ? Linkage::kVisible : Linkage::kPrivate;
}

struct Definition {
  size_t input = 0;
  Linkage linkage = Linkage::kVisible;
  uint64_t size_bytes = 0;  // of a variable
  const void* item = nullptr;
};

class Linker {
 public:
  explicit Linker(std::span<const LinkInput> inputs) : inputs_(inputs) {}

  Result<std::string> Link() {
    for (const LinkInput& input : inputs_) {
      auto parsed = Parse(std::string(input.ptx));
      if (!parsed.ok()) {
        Diagnostic error = parsed.error();
        error.message = input.name + ": " + error.message;
        return error;
      }
      modules_.push_back(std::move(parsed).value());
    }
    CollectDefinitions();
    RenamePrivate();
    NumberFiles();
    CheckReferences();
    if (!errors_.empty()) {
      return Diagnostic{Diagnostic::Code::kInvalid, 0, 0, errors_, ""};
    }
    return Print();
  }

 private:
  void Error(const std::string& text) { errors_ += (errors_.empty() ? "" : "\n") + text; }

  // ---- Global names

  void Define(std::string_view name, const Definition& candidate) {
    const auto [known, is_new] = globals_.try_emplace(std::string(name), candidate);
    if (is_new) return;
    Definition& current = known->second;
    const bool both_strong =
        current.linkage == Linkage::kVisible && candidate.linkage == Linkage::kVisible;
    if (both_strong) {
      Error("Multiple definition of '" + std::string(name) + "' in '" +
            inputs_[candidate.input].name + "', first defined in '" + inputs_[current.input].name +
            "'");
      return;
    }
    const bool larger_common = current.linkage == Linkage::kCommon &&
                               candidate.linkage == Linkage::kCommon &&
                               candidate.size_bytes > current.size_bytes;
    if (candidate.linkage > current.linkage || larger_common) current = candidate;
  }

  void CollectDefinitions() {
    for (size_t i = 0; i < modules_.size(); ++i) {
      for (const Item& item : modules_[i].items) {
        if (const auto* function = std::get_if<Function>(&item)) {
          if (!function->has_body) continue;
          Linkage linkage = LinkageOf(function->linkage);
          if (function->is_entry && linkage == Linkage::kPrivate) linkage = Linkage::kVisible;
          if (linkage == Linkage::kPrivate) continue;
          Define(function->name, {i, linkage, 0, function});
        } else if (const auto* variable = std::get_if<Variable>(&item)) {
          const Linkage linkage = LinkageOf(variable->linkage);
          if (linkage == Linkage::kPrivate || linkage == Linkage::kExtern) continue;
          for (const auto& name : variable->names) {
            Define(name.text, {i, linkage, VariableSizeBytes(*variable, name), variable});
          }
        } else if (const auto* raw = std::get_if<RawDirective>(&item)) {
          // `.alias fA, fB;` defines fA.
          const std::optional<std::string_view> alias = AliasOf(*raw);
          if (alias) Define(*alias, {i, Linkage::kVisible, 0, raw});
        }
      }
    }
  }

  static std::optional<std::string_view> AliasOf(const RawDirective& raw) {
    if (!raw.text.starts_with(".alias")) return std::nullopt;
    std::optional<std::string_view> first;
    ForEachWord(raw.text.substr(6), [&](std::string_view word) {
      if (!first) first = word;
    });
    return first;
  }

  // ---- Private names

  // Words that an item declares without linkage.
  static void ForEachPrivateName(const Item& item,
                                 const std::function<void(std::string_view)>& action) {
    if (const auto* function = std::get_if<Function>(&item)) {
      if (!function->is_entry && LinkageOf(function->linkage) == Linkage::kPrivate)
        action(function->name);
    } else if (const auto* variable = std::get_if<Variable>(&item)) {
      if (LinkageOf(variable->linkage) != Linkage::kPrivate) return;
      for (const auto& name : variable->names) action(name.text);
    }
  }

  void RenamePrivate() {
    std::set<std::string, std::less<>> taken;
    for (const auto& [name, definition] : globals_) taken.insert(name);
    for (size_t i = 0; i < modules_.size(); ++i) {
      Module& module = modules_[i];
      std::unordered_set<std::string_view> own;  // declared in this module with linkage somewhere
      for (const Item& item : module.items) {
        const auto* function = std::get_if<Function>(&item);
        if (function != nullptr && LinkageOf(function->linkage) != Linkage::kPrivate)
          own.insert(function->name);
      }
      std::unordered_map<std::string_view, std::string_view> renamed;
      std::set<std::string, std::less<>> names;
      for (const Item& item : module.items) {
        ForEachPrivateName(item, [&](std::string_view name) {
          if (!own.contains(name)) names.insert(std::string(name));
        });
      }
      for (const std::string& name : names) {
        if (!taken.contains(name)) continue;
        std::string fresh;
        for (size_t n = i + 1; fresh.empty() || taken.contains(fresh) || names.contains(fresh); ++n)
          fresh = name + "$module" + std::to_string(n);
        taken.insert(fresh);
        renamed[module.Intern(name)] = module.Intern(fresh);
      }
      taken.insert(names.begin(), names.end());
      if (!renamed.empty()) Rename(module, renamed);
    }
  }

  using Names = std::unordered_map<std::string_view, std::string_view>;

  static void Rename(Module& module, const Names& names) {
    for (Item& item : module.items) {
      if (auto* function = std::get_if<Function>(&item)) {
        RenameInFunction(module, *function, names);
      } else if (auto* variable = std::get_if<Variable>(&item)) {
        if (LinkageOf(variable->linkage) == Linkage::kPrivate) {
          for (auto& name : variable->names) {
            if (const auto found = names.find(name.text); found != names.end())
              name.text = found->second;
          }
        }
        RenameInitializers(module, *variable, names);
      } else if (auto* raw = std::get_if<RawDirective>(&item)) {
        if (raw->text.starts_with(".alias")) raw->text = RenameWords(module, raw->text, names);
      }
    }
  }

  static void RenameInitializers(Module& module, Variable& variable, const Names& names) {
    for (auto& name : variable.names) {
      if (!name.initializer.empty())
        name.initializer = RenameWords(module, name.initializer, names);
    }
  }

  static std::string_view RenameWords(Module& module, std::string_view text, const Names& names) {
    std::string result;
    const char* copied = text.data();
    ForEachWord(text, [&](std::string_view word) {
      const auto found = names.find(word);
      if (found == names.end()) return;
      result.append(copied, word.data());
      result += found->second;
      copied = word.data() + word.size();
    });
    if (copied == text.data()) return text;
    result.append(copied, text.data() + text.size());
    return module.Intern(result);
  }

  static void RenameInFunction(Module& module, Function& function, const Names& all) {
    if (const auto found = all.find(function.name); found != all.end())
      function.name = found->second;
    // What the function declares itself hides the module's names.
    Names names = all;
    for (const auto* list : {&function.parameters, &function.results}) {
      for (const Variable& variable : *list) {
        for (const auto& name : variable.names) names.erase(name.text);
      }
    }
    for (const Statement& statement : function.body) {
      if (const auto* label = std::get_if<Label>(&statement)) names.erase(label->name);
      if (const auto* variable = std::get_if<Variable>(&statement)) {
        for (const auto& name : variable->names) names.erase(name.text);
      }
    }
    for (Statement& statement : function.body) {
      if (auto* instruction = std::get_if<Instruction>(&statement)) {
        for (Operand& operand : instruction->operands) RenameOperand(operand, names);
      } else if (auto* variable = std::get_if<Variable>(&statement)) {
        RenameInitializers(module, *variable, names);
      } else if (auto* raw = std::get_if<RawDirective>(&statement)) {
        if (raw->text.starts_with(".calltargets"))
          raw->text = RenameWords(module, raw->text, names);
      }
    }
  }

  static void RenameOperand(Operand& operand, const Names& names) {
    if (operand.kind == Operand::Kind::kSymbol) {
      if (const auto found = names.find(operand.text); found != names.end())
        operand.text = found->second;
    }
    for (Operand& child : operand.children) RenameOperand(child, names);
  }

  // ---- Source files

  void NumberFiles() {
    uint32_t base = 0;
    for (size_t i = 0; i < modules_.size(); ++i) {
      uint32_t highest = 0;
      for (Item& item : modules_[i].items) {
        if (auto* file = std::get_if<File>(&item)) {
          highest = std::max(highest, file->index);
          file->index += base;
        } else if (auto* function = std::get_if<Function>(&item)) {
          for (Statement& statement : function->body) {
            auto* loc = std::get_if<Loc>(&statement);
            if (loc == nullptr || i == 0) continue;
            loc->text = {};
            loc->file += base;
            // Names of inlined functions are labels of the debug section, which only the first
            // module keeps.
            loc->has_function = false;
            loc->inlined_at_file = 0;
          }
        }
      }
      base += highest;
    }
  }

  // ---- References

  void CheckReferences() {
    for (size_t i = 0; i < modules_.size(); ++i) {
      std::unordered_set<std::string_view> external;
      for (const Item& item : modules_[i].items) {
        if (const auto* function = std::get_if<Function>(&item)) {
          if (LinkageOf(function->linkage) == Linkage::kExtern && !function->has_body)
            external.insert(function->name);
        } else if (const auto* variable = std::get_if<Variable>(&item)) {
          if (LinkageOf(variable->linkage) != Linkage::kExtern || variable->space == ".shared")
            continue;
          for (const auto& name : variable->names) {
            external.insert(name.text);
            CheckSize(i, *variable, name);
          }
        }
      }
      std::set<std::string_view> missing;
      const auto use = [&](std::string_view name) {
        if (external.contains(name) && !globals_.contains(name) && !Contains(kBuiltins, name))
          missing.insert(name);
      };
      ForEachUse(modules_[i], use);
      for (std::string_view name : missing)
        Error("Undefined reference to '" + std::string(name) + "' in '" + inputs_[i].name + "'");
    }
  }

  void CheckSize(size_t input, const Variable& variable, const Variable::Name& name) {
    const auto found = globals_.find(name.text);
    const uint64_t bytes = VariableSizeBytes(variable, name);
    if (found == globals_.end() || bytes == 0 || found->second.size_bytes == 0 ||
        bytes == found->second.size_bytes) {
      return;
    }
    Error("Size doesn't match for '" + std::string(name.text) + "' in '" + inputs_[input].name +
          "' (" + std::to_string(bytes) + " bytes), defined in '" +
          inputs_[found->second.input].name + "' with " + std::to_string(found->second.size_bytes));
  }

  template <class Use>
  static void UseOperand(const Operand& operand, const Use& use) {
    if (operand.kind == Operand::Kind::kSymbol) use(operand.text);
    for (const Operand& child : operand.children) UseOperand(child, use);
  }

  template <class Use>
  static void ForEachUse(const Module& module, const Use& use) {
    for (const Item& item : module.items) {
      if (const auto* variable = std::get_if<Variable>(&item)) {
        for (const auto& name : variable->names) ForEachWord(name.initializer, use);
      } else if (const auto* function = std::get_if<Function>(&item)) {
        for (const Statement& statement : function->body) {
          if (const auto* instruction = std::get_if<Instruction>(&statement)) {
            for (const Operand& operand : instruction->operands) UseOperand(operand, use);
          }
        }
      }
    }
  }

  // ---- Output

  // "9.0" as 900, to compare.
  static uint32_t VersionOf(std::string_view text) {
    const size_t dot = text.find('.');
    const auto number = [](std::string_view digits) {
      return static_cast<uint32_t>(std::strtoul(std::string(digits).c_str(), nullptr, 10));
    };
    return number(text.substr(0, dot)) * 100 +
           (dot == std::string_view::npos ? 0 : number(text.substr(dot + 1)));
  }
  // "sm_90a" as 901, to compare.
  static uint32_t ArchitectureOf(const Module& module) {
    if (module.targets.empty() || !module.targets[0].starts_with("sm_")) return 0;
    const std::string text(module.targets[0].substr(3));
    return static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 10)) * 10 +
           (text.back() == 'a' || text.back() == 'f' ? 1 : 0);
  }

  bool Stays(std::string_view name, const void* item) const {
    const auto found = globals_.find(name);
    return found == globals_.end() || found->second.item == item;
  }

  // A declaration of `function`, with the linkage of its definition.
  static Function Prototype(const Function& function) {
    Function prototype = function;
    prototype.has_body = false;
    prototype.body.clear();
    prototype.directives.clear();
    return prototype;
  }

  std::string Print() {
    Module out;
    uint32_t version = 0, architecture = 0;
    for (const Module& module : modules_) {
      if (VersionOf(module.version) >= version) {
        version = VersionOf(module.version);
        out.version = module.version;
      }
      if (ArchitectureOf(module) >= architecture) {
        architecture = ArchitectureOf(module);
        out.targets = module.targets;
      }
    }
    out.address_size = 64;
    out.has_address_size = true;
    std::set<std::string_view> declared;
    const auto declare = [&](const Function& function) {
      if (!function.is_entry && declared.insert(function.name).second)
        out.items.emplace_back(Prototype(function));
    };
    for (const Module& module : modules_) {
      for (const Item& item : module.items) {
        const auto* function = std::get_if<Function>(&item);
        if (function != nullptr && function->has_body && Stays(function->name, function))
          declare(*function);
      }
    }
    // What only has prototypes: built-in functions, and functions that an .alias defines.
    for (const Module& module : modules_) {
      for (const Item& item : module.items) {
        const auto* function = std::get_if<Function>(&item);
        if (function != nullptr && !function->has_body) declare(*function);
      }
    }
    for (size_t i = 0; i < modules_.size(); ++i) {
      for (const Item& item : modules_[i].items) {
        if (std::holds_alternative<File>(item)) out.items.push_back(item);
        if (const auto* variable = std::get_if<Variable>(&item)) AddVariable(out, *variable);
      }
    }
    for (size_t i = 0; i < modules_.size(); ++i) {
      for (const Item& item : modules_[i].items) {
        if (const auto* function = std::get_if<Function>(&item)) {
          if (function->has_body && Stays(function->name, function)) out.items.push_back(item);
        } else if (const auto* raw = std::get_if<RawDirective>(&item)) {
          const bool is_section = raw->text.starts_with(".section");
          const bool is_header = raw->text.starts_with(".version") ||
                                 raw->text.starts_with(".target") ||
                                 raw->text.starts_with(".address_size");
          if (!is_header && (!is_section || i == 0)) out.items.push_back(item);
        }
      }
    }
    return ptx::Print(out);
  }

  void AddVariable(Module& out, const Variable& variable) {
    Variable kept = variable;
    const bool is_extern = LinkageOf(variable.linkage) == Linkage::kExtern;
    std::erase_if(kept.names, [&](const Variable::Name& name) {
      // Of an `.extern` one remains if it is the dynamic shared memory, which nobody defines.
      if (is_extern)
        return globals_.contains(name.text) || !external_variables_.insert(name.text).second;
      return !Stays(name.text, &variable);
    });
    if (!kept.names.empty()) out.items.emplace_back(std::move(kept));
  }

  std::span<const LinkInput> inputs_;
  std::vector<Module> modules_;
  std::map<std::string, Definition, std::less<>> globals_;
  std::set<std::string_view> external_variables_;
  std::string errors_;
};

}  // namespace

Result<std::string> LinkModules(std::span<const LinkInput> inputs) { return Linker(inputs).Link(); }

}  // namespace ops_debug::ptx
