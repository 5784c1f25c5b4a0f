// The dynamic linker's structures: System V gABI chapter 5 and the x86-64 psABI; which objects are
// loaded is asked of dl_iterate_phdr.
//
// Two locks of the dynamic linker matter. Its list of objects holds some that another thread is
// still loading: a dlopen of their name waits until that is done, so slots are written only while
// a handle is held. And dl_iterate_phdr holds the second lock, so dlopen is not called within it.
#include "interposer/library_copies.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interposer/dynamic_linker.h"

namespace ops_debug::interposer {
namespace {

constexpr int kLockAttempts = 2000;

struct Slot {
  const LibraryFunction* function;
  uintptr_t address;
};

struct Object {
  uintptr_t base = 0;
  std::string path;
  std::vector<Slot> slots;
  uintptr_t sealed_begin = 0, sealed_end = 0;  // made read-only after relocation
};

// In a library and what it depends on. A look-up by handle never sees the preloaded library's
// exports.
class OpenLibrary {
 public:
  explicit OpenLibrary(const std::string& path)
      : handle_(path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {}
  ~OpenLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  OpenLibrary(const OpenLibrary&) = delete;
  OpenLibrary& operator=(const OpenLibrary&) = delete;
  void* Find(const char* name) const {
    return handle_ == nullptr ? nullptr : RealDlsym()(handle_, name);
  }
  bool open() const { return handle_ != nullptr; }

 private:
  void* handle_;
};

// Behind this library.
void* InGlobalScope(const char* name) { return RealDlsym()(RTLD_NEXT, name); }

// The dynamic section's tables, as far as they are needed.
struct Tables {
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  std::span<const Elf64_Rela> relocations[2];
  std::vector<uint64_t> needed;  // offsets into `strings`
};

Tables ReadTables(const Elf64_Dyn* dynamic) {
  Tables tables;
  const Elf64_Rela* first[2] = {};
  size_t count[2] = {};
  for (const Elf64_Dyn* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    // glibc has made the addresses absolute.
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const Elf64_Sym*>(entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        break;
      case DT_RELA:
        first[0] = reinterpret_cast<const Elf64_Rela*>(entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        count[0] = entry->d_un.d_val / sizeof(Elf64_Rela);
        break;
      case DT_JMPREL:
        first[1] = reinterpret_cast<const Elf64_Rela*>(entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        count[1] = entry->d_un.d_val / sizeof(Elf64_Rela);
        break;
      case DT_NEEDED:
        tables.needed.push_back(entry->d_un.d_val);
        break;
      default:
        break;
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (first[i] != nullptr) tables.relocations[i] = {first[i], count[i]};
  }
  return tables;
}

// The slots of hooked functions, if the object names such a library among those that it needs.
std::vector<Slot> FindSlots(uintptr_t base, const Elf64_Dyn* dynamic) {
  const Tables tables = ReadTables(dynamic);
  if (tables.symbols == nullptr || tables.strings == nullptr) return {};
  const bool linked = std::ranges::any_of(tables.needed, [&](uint64_t offset) {
    const std::string_view name = tables.strings + offset;
    return name.find("nvrtc") != std::string_view::npos ||
           name.find("nvJitLink") != std::string_view::npos;
  });
  if (!linked) return {};
  std::vector<Slot> slots;
  for (const auto table : tables.relocations) {
    for (const Elf64_Rela& relocation : table) {
      const auto type = ELF64_R_TYPE(relocation.r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
      const Elf64_Sym& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
      if (symbol.st_shndx != SHN_UNDEF || symbol.st_name == 0 || relocation.r_addend != 0) continue;
      if (const LibraryFunction* function = FindLibraryFunction(tables.strings + symbol.st_name))
        slots.push_back({function, base + relocation.r_offset});
    }
  }
  return slots;
}

Object Describe(const dl_phdr_info& info) {
  Object object;
  object.base = info.dlpi_addr;
  object.path = info.dlpi_name != nullptr ? info.dlpi_name : "";
  const Elf64_Dyn* dynamic = nullptr;
  for (const Elf64_Phdr& header : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const Elf64_Dyn*>(begin);
    if (header.p_type == PT_GNU_RELRO) {
      object.sealed_begin = begin;
      object.sealed_end = begin + header.p_memsz;
    }
  }
  // The program itself has no name, and the vdso no file.
  if (dynamic != nullptr && object.path.find('/') != std::string::npos)
    object.slots = FindSlots(object.base, dynamic);
  return object;
}

void WriteSlot(const Object& object, const Slot& slot, void* value) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(slot.address & ~(page_bytes - 1));
  const bool sealed = slot.address >= (object.sealed_begin & ~(page_bytes - 1)) &&
                      slot.address < (object.sealed_end & ~(page_bytes - 1));
  if (sealed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
  __atomic_store_n(reinterpret_cast<void**>(slot.address), value, __ATOMIC_RELEASE);
  if (sealed) mprotect(page, page_bytes, PROT_READ);
}

void Bind(const Object& object) {
  const OpenLibrary library(object.path);
  if (!library.open()) return;
  for (const Slot& slot : object.slots) {
    void* real = InGlobalScope(slot.function->name);
    if (real == nullptr) real = library.Find(slot.function->name);
    if (real == nullptr) continue;
    WriteSlot(object, slot, RemembersPtx() ? EntryFor(*slot.function, real) : real);
  }
}

struct State {
  std::atomic<bool> busy{false};
  std::atomic<unsigned long long> loads_seen{0};  // of dlpi_adds
  std::set<std::pair<uintptr_t, std::string>>* bound = nullptr;
};
constinit State g_state;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_binding = false;

// An object may be found twice under one address and name if it was closed in between; it then
// goes through the exports.
void BindNewObjects() {
  if (g_state.bound == nullptr) g_state.bound = new std::set<std::pair<uintptr_t, std::string>>;
  std::vector<Object> objects;
  VisitObjects(
      [](dl_phdr_info* info, size_t, void* data) {
        try {
          const char* const path = info->dlpi_name != nullptr ? info->dlpi_name : "";
          if (g_state.bound->emplace(info->dlpi_addr, path).second)
            static_cast<std::vector<Object>*>(data)->push_back(Describe(*info));
        } catch (...) {
        }
        return 0;
      },
      &objects);
  for (const Object& object : objects) {
    if (!object.slots.empty()) Bind(object);
  }
}

// The function as other objects reach it. Several may reach different copies: then the one that
// lies nearest to the caller, as parts of one package do.
void* ReachedByOthers(const LibraryFunction& function, const char* caller_path) {
  std::vector<std::string> paths;
  VisitObjects(
      [](dl_phdr_info* info, size_t, void* data) {
        try {
          if (info->dlpi_name != nullptr && std::strchr(info->dlpi_name, '/') != nullptr)
            static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        } catch (...) {
        }
        return 0;
      },
      &paths);
  const std::string_view caller = caller_path;
  void* best = nullptr;
  std::ptrdiff_t best_prefix = -1;
  for (const std::string& path : paths) {
    void* const real = OpenLibrary(path).Find(function.name);
    if (real == nullptr || real == reinterpret_cast<void*>(function.exported)) continue;
    const std::ptrdiff_t prefix = std::ranges::mismatch(path, caller).in1 - path.begin();
    if (prefix <= best_prefix) continue;
    best = real;
    best_prefix = prefix;
  }
  return best;
}

}  // namespace

void BindLibraryImports() noexcept {
  if (t_binding) return;
  const unsigned long long loads = LoadCount();
  if (loads == g_state.loads_seen.load(std::memory_order_acquire)) return;
  // No mutex: one that another thread holds at a fork would stay locked in the child.
  for (int attempt = 0; g_state.busy.exchange(true, std::memory_order_acquire); ++attempt) {
    if (attempt == kLockAttempts) return;
    sched_yield();
  }
  t_binding = true;
  try {
    BindNewObjects();
    g_state.loads_seen.store(loads, std::memory_order_release);
  } catch (...) {
  }
  t_binding = false;
  g_state.busy.store(false, std::memory_order_release);
}

void* RealInScope(const LibraryFunction& function, const void* caller) {
  if (void* real = InGlobalScope(function.name)) return real;
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  return OpenLibrary(info.dli_fname).Find(function.name);
}

void* RealForCaller(const LibraryFunction& function, const void* caller) {
  try {
    if (void* real = RealInScope(function, caller)) return real;
    Dl_info info;
    const bool known = dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
    return ReachedByOthers(function, known ? info.dli_fname : "");
  } catch (...) {
    return nullptr;
  }
}

// Objects that are there from the beginning.
__attribute__((constructor)) static void BindFirstObjects() { BindLibraryImports(); }

}  // namespace ops_debug::interposer
