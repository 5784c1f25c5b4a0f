// Symbolisation by elfutils' libdwfl. Each module is opened once, alone, at address 0, so that
// module offsets are file addresses. Functions that a compiler inlined are frames of their own: the
// call of a template in cuda_runtime.h would else hide the line that called it. A module that
// cannot be read (gone, other machine, stripped) degrades frame by frame: exported symbol that the
// target sent, then module and offset.
#include "analysis/host_stack.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/demangle.h"

namespace ops_debug::analysis {
namespace {

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Libraries whose inside tells an operator's author nothing.
bool IsToolModule(std::string_view path) {
  const std::string_view file = FileName(path);
  for (const std::string_view prefix :
       {"libcuda.so", "libcudart.so", "libops_debug_", "libcudadebugger.so", "ld-linux"}) {
    if (StartsWith(file, prefix)) return true;
  }
  return false;
}

// With --kernel the host side is ours: the author has no line in it.
bool IsRunner(std::string_view path) { return FileName(path) == "ops-debug-runner"; }

// Functions that stand between the program's call and the driver: the run-time library when it is
// linked statically, the launch stubs that nvcc makes, the templates of cuda_runtime.h.
bool IsToolFunction(const HostFrame& frame, const std::string& kernel) {
  const std::string name = BareName(frame.function);
  if (name.empty()) return false;
  for (const std::string_view prefix :
       {"__cudart", "libcudart_static_", "__device_stub__", "cudaLaunch", "__cudaLaunch",
        "cudaMalloc", "cudaFree", "cuLaunch"}) {
    if (StartsWith(name, prefix)) return true;
  }
  if (!kernel.empty() && frame.function == kernel) return true;
  const std::string_view file = FileName(frame.file);
  return file.find(".cudafe1.stub.c") != std::string_view::npos || file == "cuda_runtime.h";
}

// Start code of the C library, and of threads.
bool IsStartFunction(const HostFrame& frame) {
  for (const std::string_view name :
       {"_start", "__libc_start_main", "__libc_start_call_main", "__libc_start_main_impl",
        "start_thread", "clone", "__clone", "clone3", "__clone3"}) {
    if (frame.function == name) return true;
  }
  return false;
}

bool IsCLibrary(std::string_view path) {
  const std::string_view file = FileName(path);
  return StartsWith(file, "libc.so") || StartsWith(file, "libc-2") ||
         StartsWith(file, "libpthread");
}

}  // namespace

// The ELF files that were looked into so far, by path.
class HostSymbolizer::Modules {
 public:
  struct Module {
    Dwfl* session = nullptr;
    Dwfl_Module* module = nullptr;  // null: not readable
    GElf_Addr bias = 0;             // libdwfl's address of file address 0
    uint64_t first_address = 0;     // of an executable with fixed addresses; else 0
  };

  Modules() = default;
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;
  ~Modules() {
    for (auto& [path, module] : modules_) {
      if (module.session != nullptr) dwfl_end(module.session);
    }
  }

  const Module& Find(const std::string& path) {
    const auto known = modules_.find(path);
    if (known != modules_.end()) return known->second;
    return modules_[path] = Open(path);
  }

 private:
  static Module Open(const std::string& path) {
    static char* debuginfo_path =
        nullptr;  // libdwfl's default: beside the file, .debug, /usr/lib/debug
    static const Dwfl_Callbacks kCallbacks = {
        .find_elf = dwfl_build_id_find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .section_address = dwfl_offline_section_address,
        .debuginfo_path = &debuginfo_path,
    };
    Module module;
    if (path.empty() || path.front() != '/') return module;  // "[vdso]", "", a relative path
    module.session = dwfl_begin(&kCallbacks);
    if (module.session == nullptr) return module;
    dwfl_report_begin(module.session);
    module.module = dwfl_report_offline(module.session, path.c_str(), path.c_str(), -1);
    dwfl_report_end(module.session, nullptr, nullptr);
    if (module.module == nullptr) return module;
    Elf* elf = dwfl_module_getelf(module.module, &module.bias);
    GElf_Ehdr header;
    if (elf == nullptr || gelf_getehdr(elf, &header) == nullptr) {
      module.module = nullptr;
      return module;
    }
    // Offsets count from the load address. A position-independent file has its first byte at
    // address 0, an executable with fixed addresses has it at its first segment.
    if (header.e_type == ET_EXEC) {
      size_t segments = 0;
      elf_getphdrnum(elf, &segments);
      uint64_t first = ~0ull;
      for (size_t i = 0; i < segments; ++i) {
        GElf_Phdr segment;
        if (gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr) continue;
        if (segment.p_type == PT_LOAD) first = std::min<uint64_t>(first, segment.p_vaddr);
      }
      if (first != ~0ull) module.first_address = first;
    }
    return module;
  }

  std::map<std::string, Module> modules_;

 public:
  // Frames by module, offset and symbol: thousands of allocations share a few stacks.
  std::map<std::tuple<std::string, uint64_t, std::string>, std::vector<HostFrame>> resolved;
};

namespace {

std::string NameOf(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned int kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    const char* linkage = dwarf_formstring(dwarf_attr_integrate(die, kind, &attribute));
    if (linkage != nullptr) return Demangle(linkage);
  }
  const char* name = dwarf_diename(die);
  return name != nullptr ? name : "";
}

// Where an inlined call stands in the caller's source.
void SetCallPlace(Dwarf_Die* inlined, HostFrame& caller) {
  Dwarf_Attribute attribute;
  Dwarf_Word file = 0, line = 0;
  Dwarf_Die unit;
  Dwarf_Files* files = nullptr;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 ||
      dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
      dwarf_diecu(inlined, &unit, nullptr, nullptr) == nullptr ||
      dwarf_getsrcfiles(&unit, &files, nullptr) != 0) {
    return;
  }
  if (const char* name = dwarf_filesrc(files, file, nullptr, nullptr)) {
    caller.file = name;
    caller.line = static_cast<uint32_t>(line);
  }
}

// The function that holds the code at `address`, and those that were inlined into it around it.
// `frame` has the function's symbol and the line of the innermost. Innermost first.
std::vector<HostFrame> WithInlined(Dwfl_Module* module, Dwarf_Addr address, HostFrame frame) {
  std::vector<HostFrame> frames;
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  Dwarf_Die* scopes = nullptr;
  // The first call finds the innermost scope, but goes on with those of the inlined function's
  // definition; the second goes on with those of the code.
  if (unit != nullptr && dwarf_getscopes(unit, address - bias, &scopes) > 0) {
    Dwarf_Die innermost = scopes[0];
    std::free(scopes);  // NOLINT(cppcoreguidelines-no-malloc): libdw's contract
    scopes = nullptr;
    const int count = dwarf_getscopes_die(&innermost, &scopes);
    for (int i = 0; i < count; ++i) {
      const int tag = dwarf_tag(&scopes[i]);
      if (tag == DW_TAG_subprogram) break;
      if (tag != DW_TAG_inlined_subroutine) continue;
      HostFrame inlined = frame;
      inlined.function = NameOf(&scopes[i]);
      frames.push_back(std::move(inlined));
      SetCallPlace(&scopes[i], frame);
    }
  }
  std::free(scopes);  // NOLINT(cppcoreguidelines-no-malloc)
  frames.push_back(std::move(frame));
  return frames;
}

}  // namespace

HostSymbolizer::HostSymbolizer() : modules_(std::make_unique<Modules>()) {}
HostSymbolizer::~HostSymbolizer() = default;

std::vector<HostFrame> HostSymbolizer::ResolveFrame(const proto::StackFrame& frame) {
  HostFrame result;
  result.module = frame.module();
  result.module_offset = frame.offset();
  result.function = Demangle(frame.symbol());
  result.function_offset = frame.symbol_offset();
  const Modules::Module& module = modules_->Find(frame.module());
  if (module.module == nullptr || frame.offset() == 0) return {result};
  uint64_t file_address = frame.offset();
  if (file_address < module.first_address) file_address += module.first_address;
  // A return address is behind its call; the byte before it belongs to the call.
  const GElf_Addr address = module.bias + file_address - 1;
  GElf_Off symbol_offset = 0;
  GElf_Sym symbol;
  const char* name = dwfl_module_addrinfo(module.module, address, &symbol_offset, &symbol, nullptr,
                                          nullptr, nullptr);
  if (name != nullptr) {
    result.function = Demangle(name);
    result.function_offset = symbol_offset + 1;
  }
  if (Dwfl_Line* line = dwfl_module_getsrc(module.module, address)) {
    int number = 0;
    const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    if (file != nullptr && number > 0) {
      result.file = file;
      result.line = static_cast<uint32_t>(number);
    }
  }
  if (result.line == 0) return {result};
  return WithInlined(module.module, address, std::move(result));
}

std::vector<HostFrame> HostSymbolizer::Resolve(const proto::StackTrace& stack,
                                               const std::string& kernel) {
  std::vector<HostFrame> frames;
  for (const proto::StackFrame& frame : stack.frames()) {
    if (IsRunner(frame.module())) return {};
    const auto [known, is_new] =
        modules_->resolved.try_emplace({frame.module(), frame.offset(), frame.symbol()});
    if (is_new) known->second = ResolveFrame(frame);
    frames.insert(frames.end(), known->second.begin(), known->second.end());
  }
  auto begin = frames.begin();
  while (begin != frames.end() && (IsToolModule(begin->module) || IsToolFunction(*begin, kernel))) {
    ++begin;
  }
  auto end = frames.end();
  while (end != begin) {
    const HostFrame& outermost = *(end - 1);
    if (!IsStartFunction(outermost) && !IsCLibrary(outermost.module)) break;
    --end;
  }
  if (begin == end) return frames;
  return {begin, end};
}

}  // namespace ops_debug::analysis
