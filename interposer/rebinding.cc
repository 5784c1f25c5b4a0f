// Finding and setting the pointers (rebinding.h).
//
// Objects are visited by dl_iterate_phdr, their data read only where /proc/self/maps says that it
// can be. Pages that the dynamic linker made read-only after relocation (RELRO) are opened for the
// moment of the write.
#include "interposer/rebinding.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interposer/dynamic_linker.h"
#include "interposer/hooks.h"
#include "interposer/library_hooks.h"
#include "interposer/torch_hooks.h"

// Exported functions of ours that are no driver functions. Weak: test programs leave them out.
#define OPS_DEBUG_OTHER_HOOKS(X) \
  X(sigaction)                   \
  X(signal)                      \
  X(_exit)                       \
  X(_Exit)                       \
  X(execve)                      \
  X(execv)                       \
  X(execvp)                      \
  X(execvpe)                     \
  X(execl)                       \
  X(execlp)                      \
  X(execle)                      \
  X(fexecve)                     \
  X(posix_spawn)                 \
  X(posix_spawnp)

extern "C" {
__attribute__((weak, visibility("hidden"))) void ops_debug_export_dlsym();
}

namespace ops_debug::interposer {
namespace {

struct Target {
  uintptr_t real;
  uintptr_t hook;
  bool operator<(const Target& other) const { return real < other.real; }
};

struct NamedTarget {
  std::string_view name;
  uintptr_t hook;
  bool if_bound = false;  // also slots that lead to the real function already
  bool operator<(const NamedTarget& other) const { return name < other.name; }
};

struct Range {
  uintptr_t begin, end;
  int protection;
};

struct Object {
  uintptr_t base = 0;
  std::string name;
  std::vector<Range> data;  // writable segments
  std::vector<Range> code;
  const ElfW(Dyn) * dynamic = nullptr;
};

// Names that the program's objects must not be mistaken for: the driver, its own parts, tools that
// look at the driver as we do, and the loader.
bool IsLeftAlone(const std::string& path) {
  static constexpr std::string_view kPrefixes[] = {"libcuda.so",
                                                   "libnvidia-",
                                                   "libcudadebugger",
                                                   "libcupti",
                                                   "libnvperf",
                                                   "libsanitizer",
                                                   "libToolsInjection",
                                                   "libcuda-injection",
                                                   "libTreeLauncher",
                                                   "libInterceptorInjection",
                                                   "libaccinj",
                                                   "ld-linux",
                                                   "linux-vdso",
                                                   "libc.so",
                                                   "libops_debug_interposer"};
  const std::string_view file = std::string_view(path).substr(path.rfind('/') + 1);
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return file.starts_with(prefix); });
}

class Rebinding {
 public:
  Rebinding() { CollectTargets(); }

  size_t Run() {
    ReadMaps();
    std::vector<Object> objects;
    VisitObjects(
        [](dl_phdr_info* info, size_t, void* data) {
          static_cast<std::vector<Object>*>(data)->push_back(Describe(*info));
          return 0;
        },
        &objects);
    size_t set = 0;
    const auto own = reinterpret_cast<uintptr_t>(&RebindLoadedObjects);
    for (const Object& object : objects) {
      if (!IsNew(object) || IsLeftAlone(object.name)) continue;
      first_slot_ = 0;
      const bool is_us =
          std::any_of(object.code.begin(), object.code.end(),
                      [&](const Range& code) { return own >= code.begin && own < code.end; });
      if (is_us) continue;
      set += RebindSlots(object) + RebindValues(object);
      treated_[{object.base, object.name}] = first_slot_;
    }
    return set;
  }

 private:
  // An object that was closed and opened again may lie where it lay, with its slots as the dynamic
  // linker filled them.
  bool IsNew(const Object& object) const {
    const auto found = treated_.find({object.base, object.name});
    if (found == treated_.end()) return true;
    const uintptr_t slot = found->second;
    if (slot == 0 || FindMap(slot) == nullptr) return false;
    const uintptr_t value = *reinterpret_cast<const uintptr_t*>(slot);
    return FindTarget(value) != nullptr ||
           std::any_of(object.code.begin(), object.code.end(),
                       [&](const Range& code) { return value >= code.begin && value < code.end; });
  }

  static Object Describe(const dl_phdr_info& info) {
    Object object;
    object.base = info.dlpi_addr;
    object.name = info.dlpi_name != nullptr ? info.dlpi_name : "";
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info.dlpi_phdr[i];
      const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
      if (header.p_type == PT_DYNAMIC) {
        object.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
      } else if (header.p_type == PT_LOAD) {
        const Range range{begin, begin + header.p_memsz, 0};
        if ((header.p_flags & PF_W) != 0) object.data.push_back(range);
        if ((header.p_flags & PF_X) != 0) object.code.push_back(range);
      }
    }
    return object;
  }

  void AddTarget(std::string_view name, const void* real, const void* hook) {
    if (real == nullptr || real == hook) return;
    targets_.push_back({reinterpret_cast<uintptr_t>(real), reinterpret_cast<uintptr_t>(hook)});
    names_.push_back({name, reinterpret_cast<uintptr_t>(hook)});
  }

  void CollectTargets() {
    // Where two variants share an address, the one for the legacy default stream speaks for both,
    // as in cuGetProcAddress (hooks_lookup.cc): it comes first.
    for (const DefaultStream kind : {DefaultStream::kLegacy, DefaultStream::kPerThread}) {
      for (const Hook& hook : AllHooks()) {
        const DriverFunctionInfo& info = Info(hook.function);
        if (info.default_stream != kind || !Serves(hook.function)) continue;
        AddTarget(info.symbol, RealAddress(hook.function),
                  reinterpret_cast<const void*>(hook.exported));
      }
    }
    if (&ops_debug_export_dlsym != nullptr) {
      const auto* const hook = reinterpret_cast<const void*>(&ops_debug_export_dlsym);
      for (const void* real : RealDlsymAddresses()) AddTarget("dlsym", real, hook);
    }
    AddOtherHooks();
    // PyTorch may be loaded later than the driver, so its functions are known by name only.
    for (const TorchFunction& function : TorchFunctions()) {
      names_.push_back({function.symbol, reinterpret_cast<uintptr_t>(function.ours), true});
    }
    std::stable_sort(targets_.begin(), targets_.end());
    targets_.erase(std::unique(targets_.begin(), targets_.end(),
                               [](const Target& a, const Target& b) { return a.real == b.real; }),
                   targets_.end());
    std::stable_sort(names_.begin(), names_.end());
  }

  // Found as the program finds them; ours are asked of ourselves.
  void AddOtherHooks() {
    Dl_info self{};
    if (dladdr(reinterpret_cast<void*>(&RebindLoadedObjects), &self) == 0) return;
    void* const handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return;
#define OPS_DEBUG_ADD(name) \
  AddTarget(#name, RealDlsym()(RTLD_DEFAULT, #name), RealDlsym()(handle, #name));
    OPS_DEBUG_OTHER_HOOKS(OPS_DEBUG_ADD)
#undef OPS_DEBUG_ADD
    dlclose(handle);
  }

  const Target* FindTarget(uintptr_t value) const {
    const auto found = std::lower_bound(targets_.begin(), targets_.end(), Target{value, 0});
    return found != targets_.end() && found->real == value ? &*found : nullptr;
  }

  // What is mapped now, and how.
  void ReadMaps() {
    maps_.clear();
    FILE* file = std::fopen("/proc/self/maps", "re");
    if (file == nullptr) return;
    char line[512];
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      uintptr_t begin = 0, end = 0;
      char flags[5] = "";
      if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, flags) != 3) continue;
      const int protection = (flags[0] == 'r' ? PROT_READ : 0) |
                             (flags[1] == 'w' ? PROT_WRITE : 0) | (flags[2] == 'x' ? PROT_EXEC : 0);
      maps_.push_back({begin, end, protection});
      // The rest of a long line.
      while (std::strchr(line, '\n') == nullptr &&
             std::fgets(line, sizeof(line), file) != nullptr) {
      }
    }
    std::fclose(file);
  }

  // The mapping that holds all of the word; null if there is none or it cannot be read.
  const Range* FindMap(uintptr_t address) const {
    const auto behind =
        std::upper_bound(maps_.begin(), maps_.end(), address,
                         [](uintptr_t value, const Range& map) { return value < map.begin; });
    if (behind == maps_.begin()) return nullptr;
    const Range& map = *std::prev(behind);
    const bool holds = address + sizeof(uintptr_t) <= map.end && (map.protection & PROT_READ) != 0;
    return holds ? &map : nullptr;
  }

  bool Write(const Range& map, uintptr_t address, uintptr_t value) {
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const page = reinterpret_cast<void*>(address & ~(page_bytes - 1));
    const bool sealed = (map.protection & PROT_WRITE) == 0;
    if (sealed && mprotect(page, page_bytes, map.protection | PROT_WRITE) != 0) return false;
    __atomic_store_n(reinterpret_cast<uintptr_t*>(address), value, __ATOMIC_RELEASE);
    if (sealed) mprotect(page, page_bytes, map.protection);
    if (first_slot_ == 0) first_slot_ = address;
    return true;
  }

  size_t RebindValues(const Object& object) {
    if (targets_.empty()) return 0;
    const uintptr_t lowest = targets_.front().real, highest = targets_.back().real;
    size_t set = 0;
    for (const Range& segment : object.data) {
      constexpr uintptr_t kWord = sizeof(uintptr_t);
      uintptr_t at = (segment.begin + kWord - 1) & ~(kWord - 1);
      while (at + kWord <= segment.end) {
        const Range* const map = FindMap(at);
        if (map == nullptr) {
          at += kWord;
          const auto next = std::upper_bound(
              maps_.begin(), maps_.end(), at,
              [](uintptr_t value, const Range& range) { return value < range.begin; });
          if (next == maps_.end() || next->begin >= segment.end) break;
          at = std::max(at, next->begin);
          continue;
        }
        const uintptr_t end = std::min(segment.end, map->end);
        for (; at + kWord <= end; at += kWord) {
          const uintptr_t value =
              __atomic_load_n(reinterpret_cast<uintptr_t*>(at), __ATOMIC_RELAXED);
          if (value < lowest || value > highest) continue;
          const Target* const target = FindTarget(value);
          if (target != nullptr && Write(*map, at, target->hook)) ++set;
        }
      }
    }
    return set;
  }

  // Slots by the name of their function: those that have not been bound yet, which lead into the
  // object's own linkage table, functions of other libraries (library_hooks.h), which may exist in
  // several copies, and PyTorch's.
  size_t RebindSlots(const Object& object) {
    if (object.dynamic == nullptr) return 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    std::span<const ElfW(Rela)> tables[2];
    // The dynamic linker has made these addresses absolute, but in the vdso.
    for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
      const auto relocations = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
      const size_t count = entry->d_un.d_val / sizeof(ElfW(Rela));
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
          break;
        case DT_STRTAB:
          strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
          break;
        case DT_JMPREL:
          tables[0] = {relocations, tables[0].size()};
          break;
        case DT_PLTRELSZ:
          tables[0] = {tables[0].data(), count};
          break;
        case DT_RELA:
          tables[1] = {relocations, tables[1].size()};
          break;
        case DT_RELASZ:
          tables[1] = {tables[1].data(), count};
          break;
        default:
          break;
      }
    }
    if (FindMap(reinterpret_cast<uintptr_t>(symbols)) == nullptr ||
        FindMap(reinterpret_cast<uintptr_t>(strings)) == nullptr) {
      return 0;
    }
    size_t set = 0;
    for (const std::span<const ElfW(Rela)> table : tables) {
      if (FindMap(reinterpret_cast<uintptr_t>(table.data())) == nullptr) continue;
      for (const ElfW(Rela) & relocation : table) {
        const auto type = ELF64_R_TYPE(relocation.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        const char* const name = strings + symbols[ELF64_R_SYM(relocation.r_info)].st_name;
        set += RebindSlot(object, object.base + relocation.r_offset, name) ? 1 : 0;
      }
    }
    return set;
  }

  bool RebindSlot(const Object& object, uintptr_t slot, const char* name) {
    const auto named = std::lower_bound(names_.begin(), names_.end(), NamedTarget{name, 0});
    const bool is_named = named != names_.end() && named->name == name;
    const LibraryFunction* const function = is_named ? nullptr : FindLibraryFunction(name);
    if (!is_named && function == nullptr) return false;
    const Range* const map = FindMap(slot);
    if (map == nullptr) return false;
    const uintptr_t value = *reinterpret_cast<const uintptr_t*>(slot);
    const bool unbound =
        std::any_of(object.code.begin(), object.code.end(),
                    [&](const Range& code) { return value >= code.begin && value < code.end; });
    if (is_named) return (unbound || named->if_bound) && Write(*map, slot, named->hook);
    void* const entry = unbound ? reinterpret_cast<void*>(function->exported)
                                : EntryFor(*function, reinterpret_cast<void*>(value));
    return value != 0 && Write(*map, slot, reinterpret_cast<uintptr_t>(entry));
  }

  std::vector<Target> targets_;     // by address
  std::vector<NamedTarget> names_;  // by name
  std::vector<Range> maps_;         // by address
  // Objects by address and name, with the first place that was written in each (0: none).
  std::map<std::pair<uintptr_t, std::string>, uintptr_t> treated_;
  uintptr_t first_slot_ = 0;  // of the object in hand
};

// Never destroyed. Guarded by the mutex, which is free in a forked child because fork waits for
// handlers, and rebinding outside of them happens in one place only: cuInit.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit Rebinding* g_rebinding = nullptr;
constinit std::atomic<unsigned long long> g_treated{0};
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_inside = false;

}  // namespace

size_t RebindLoadedObjects() noexcept {
  if (t_inside || pthread_mutex_trylock(&g_mutex) != 0) return 0;
  t_inside = true;
  size_t set = 0;
  try {
    const unsigned long long count = LoadCount();
    if (g_rebinding == nullptr) g_rebinding = new Rebinding;
    set = g_rebinding->Run();
    g_treated = count;
  } catch (...) {
  }
  t_inside = false;
  pthread_mutex_unlock(&g_mutex);
  return set;
}

void RebindNewObjects() noexcept {
  if (!t_inside && LoadCount() != g_treated.load(std::memory_order_relaxed)) RebindLoadedObjects();
}

}  // namespace ops_debug::interposer
