// A list of functions, searched when there is a fault: faults are rare.
#include "interposer/sass_code.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ops_debug::interposer {

void SassCodeBook::ModuleLoaded(CUcontext context, CUmodule module, std::string_view cubin) {
  std::shared_ptr<const ptx::CubinCode> code;
  if (auto read = ptx::CubinCode::Read(cubin))
    code = std::make_shared<const ptx::CubinCode>(std::move(*read));
  std::lock_guard lock(mutex_);
  modules_[module] = {context, std::move(code)};
}

void SassCodeBook::ModuleUnloading(CUmodule module) {
  std::lock_guard lock(mutex_);
  modules_.erase(module);
  for (Entry& entry : functions_) {
    if (entry.module == module) entry.unloaded = true;
  }
  // What nobody asked about for long is forgotten.
  constexpr size_t kMostUnloaded = 4096;
  const auto unloaded = [](const Entry& entry) { return entry.unloaded; };
  if (static_cast<size_t>(std::count_if(functions_.begin(), functions_.end(), unloaded)) >
      kMostUnloaded) {
    functions_.erase(std::find_if(functions_.begin(), functions_.end(), unloaded));
  }
}

void SassCodeBook::ContextGone(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::erase_if(modules_, [&](const auto& module) { return module.second.context == context; });
  std::erase_if(functions_, [&](const Entry& entry) { return entry.context == context; });
}

std::shared_ptr<const ptx::CubinCode> SassCodeBook::CodeOf(const SassFunction& function) const {
  const auto named = modules_.find(function.module);
  if (named != modules_.end()) return named->second.code;
  std::shared_ptr<const ptx::CubinCode> found;
  for (const auto& [handle, module] : modules_) {
    if (module.context != function.context || !module.code) continue;
    const auto& functions = module.code->functions();
    const bool holds = std::any_of(functions.begin(), functions.end(), [&](const auto& other) {
      return other.name == function.name && other.size_bytes == function.size_bytes;
    });
    if (!holds) continue;
    // Two modules with a function of that name and size: which one it is cannot be told.
    if (found) return nullptr;
    found = module.code;
  }
  return found;
}

void SassCodeBook::Add(SassFunction function) {
  std::lock_guard lock(mutex_);
  Entry entry;
  static_cast<SassFunction&>(entry) = std::move(function);
  entry.code = CodeOf(entry);
  for (Entry& held : functions_) {
    if (held.module == entry.module && !held.unloaded && held.name == entry.name) {
      held = std::move(entry);
      return;
    }
  }
  functions_.push_back(std::move(entry));
}

std::optional<SassPlace> SassCodeBook::Find(CUcontext context, uint64_t pc) const {
  std::lock_guard lock(mutex_);
  const Entry* found = nullptr;
  for (const Entry& entry : functions_) {
    if (entry.context != context || pc < entry.pc || pc - entry.pc >= entry.size_bytes) continue;
    if (!found || !entry.unloaded || found->unloaded) found = &entry;
  }
  if (!found) return std::nullopt;
  SassPlace place;
  place.kernel = found->name;
  place.function = found->name;
  place.offset = pc - found->pc;
  place.module_id = found->module_id;
  place.unloaded = found->unloaded;
  if (found->code) {
    place.frames = found->code->FramesAt(found->name, place.offset);
    const auto inner = found->code->InnerAt(found->name, place.offset);
    if (inner) {
      place.function = inner->name;
      place.offset -= inner->offset;
    }
  }
  return place;
}

std::vector<SassFunction> SassCodeBook::SeparateFunctions(CUcontext context) const {
  std::lock_guard lock(mutex_);
  std::vector<SassFunction> wanted;
  std::set<std::pair<CUmodule, std::string>> seen;
  for (const Entry& entry : functions_) {
    if (entry.context == context) seen.emplace(entry.module, entry.name);
  }
  for (const Entry& entry : functions_) {
    if (entry.context != context || entry.unloaded || !entry.code) continue;
    for (const ptx::CubinCode::Function& function : entry.code->functions()) {
      if (function.entry || !seen.emplace(entry.module, function.name).second) continue;
      SassFunction out;
      out.context = context;
      out.module = entry.module;
      out.name = function.name;
      out.module_id = entry.module_id;
      wanted.push_back(std::move(out));
    }
  }
  return wanted;
}

}  // namespace ops_debug::interposer
