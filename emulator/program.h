// What Program::Impl and Kernel hold: shared by loading, decoding and running, hidden from users of
// executor.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/code.h"
#include "emulator/executor.h"
#include "ptx/ir.h"

namespace ops_debug::emulator {

// What a name in PTX stands for.
struct Symbol {
  enum class Kind : uint8_t {
    kAddress,          // .global or .const variable: value is its device address
    kShared,           // value is an index into shared_variables
    kLocal,            // bytes of the frame's local memory: value is the offset in the frame
    kKernelParameter,  // value is the offset in the parameter buffer
    kFunction,         // value is the function index
    kNone,
  };
  Kind kind = Kind::kNone;
  uint64_t value = 0;
  uint64_t size_bytes = 0;
  bool is_const = false;
};

struct SharedVariable {
  std::string name;
  uint64_t size_bytes = 0;  // 0 with is_dynamic
  uint32_t alignment_bytes = 1;
  bool is_dynamic = false;
};

struct ModuleVariable {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
};

class Kernel {
 public:
  uint32_t function = 0;
  KernelAttributes attributes;
  // Shared address of each of the program's shared variables that this kernel reaches; ~0 = not
  // reached.
  std::vector<uint32_t> shared_offsets;
  uint32_t dynamic_shared_offset = 0;
  uint64_t local_limit_bytes = 0;  // per thread
  // Reads %reserved_smem_offset...: the system's part of shared memory must exist, behind the
  // kernel's own.
  bool uses_reserved_shared = false;
};

class Program::Impl {
 public:
  explicit Impl(DeviceMemory& device_memory) : memory(device_memory) {}
  ~Impl();

  DeviceMemory& memory;
  ptx::Module module;
  uint32_t serial = 0;  // distinguishes the function addresses of programs
  std::vector<std::unique_ptr<Function>> functions;
  std::unordered_map<std::string_view, uint32_t> function_index;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::map<std::string, ModuleVariable, std::less<>> variables;
  std::vector<SharedVariable> shared_variables;
  std::unordered_map<std::string_view, Symbol> module_symbols;
  // Variables declared inside function bodies, by the identity of their declaration.
  std::unordered_map<const void*, Symbol> body_variables;
  std::vector<uint64_t> allocations;

  uint64_t FunctionAddress(uint32_t index) const {
    return kCodeBase + (static_cast<uint64_t>(serial) << 24) + (static_cast<uint64_t>(index) << 4);
  }
  // -1 if no function of this program lies there.
  int64_t FunctionAt(uint64_t address) const {
    const uint64_t offset = address - FunctionAddress(0);
    return (offset & 15) == 0 && (offset >> 4) < functions.size()
               ? static_cast<int64_t>(offset >> 4)
               : -1;
  }
  const ptx::Function& Source(const Function& function) const {
    return *static_cast<const ptx::Function*>(function.source);
  }
};

// Fills in a function's code from its PTX. `kernel` is set for entries.
void DecodeFunction(const Program::Impl& program, const ptx::Function& source, const Kernel* kernel,
                    Function& out);

// Number of elements that `initializer` holds, for arrays declared with []; 0 if it cannot be read.
uint64_t CountInitializers(std::string_view initializer);
// Writes an initialiser to `memory` (size_bytes bytes). False with a reason if it cannot be read.
bool ApplyInitializer(const Program::Impl& program, const ptx::Variable& variable,
                      const ptx::Variable::Name& name, std::byte* memory, uint64_t size_bytes,
                      std::string* reason);

}  // namespace ops_debug::emulator
