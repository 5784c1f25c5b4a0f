// Names and source lines of machine code: from a cubin (an ELF file) to "this instruction belongs
// to device function F, inlined from …, at file:line". Reads
//   .symtab       functions; a device function that a kernel keeps as a function of its own is a
//                 local symbol "$kernel$function" inside the kernel's section
//   .debug_line   (nvcc -lineinfo, ptxas -lineinfo) line programs, DWARF 2 to 5 (DWARF 5 section
//                 6.2), one sequence per function, its address a relocation against the function's
//                 symbol. NVIDIA's two extended opcodes are known from LLVM's reader
//                 (DW_LNE_NVIDIA_inlined_call 0x90: row of the call, name of the inlined function;
//                 DW_LNE_NVIDIA_set_function_name 0x91)
//   .debug_str    names for those opcodes
// Every offset is checked before use: the bytes come from the program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ops_debug::ptx {

// One level of inlining.
struct CodeFrame {
  std::string function;  // mangled
  std::string file;      // as the compiler wrote it, with its folder
  uint32_t line = 0;
};

class CubinCode {
 public:
  // Copies what the questions below need, which is little: not the code. Empty if `elf` is no
  // 64-bit CUDA ELF file.
  static std::optional<CubinCode> Read(std::string_view elf);

  // Functions that start a section: kernels and separate device functions. Mangled.
  struct Function {
    std::string name;
    uint64_t size_bytes = 0;
    bool entry = false;  // a kernel
  };
  const std::vector<Function>& functions() const { return functions_; }

  bool has_lines() const { return !line_section_.empty(); }

  // A device function inside the section of another.
  struct Inner {
    std::string name;
    uint64_t offset = 0;  // from the start of the function that holds it
    uint64_t size_bytes = 0;
  };
  // The one that holds the code at `offset` in `function`, if one does.
  std::optional<Inner> InnerAt(std::string_view function, uint64_t offset) const;

  // Source lines of the instruction at `offset` in `function`, innermost first; empty without line
  // information.
  std::vector<CodeFrame> FramesAt(std::string_view function, uint64_t offset) const;

 private:
  std::vector<Function> functions_;
  std::map<std::string, std::vector<Inner>, std::less<>> inner_;
  std::string line_section_;
  std::string string_section_;
  // Offset in .debug_line of an address field → the function whose start it means, plus addend.
  struct Target {
    std::string function;
    uint64_t addend = 0;
  };
  std::map<uint64_t, Target> line_targets_;
};

}  // namespace ops_debug::ptx
