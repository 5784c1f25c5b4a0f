// Where the PTX of a cubin is found again. Compilers inside the process (NVRTC, nvJitLink, cuLink)
// and child processes (ptxas) turn PTX into cubins, and what is loaded later is only the cubin.
// Whoever sees both puts the pair in here; the loader asks with the cubin's bytes. The key is a
// hash of the whole cubin.
//
// Two levels: this process's memory, and a folder that all processes of a user share
// (kEnvPtxStore), bounded in size (the least recently used go first). A folder that cannot be
// written degrades to memory and is reported once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ops_debug::interposer {

// Options of the assembler that change what a program computes or whether it can be launched.
struct AssemblerOptions {
  bool fuse_multiply_add = true;  // ptxas --fmad
  int max_registers = 0;          // --maxrregcount; 0: none
  int optimization = -1;          // -O; -1: default
};

struct StoredPtx {
  std::string text;
  AssemblerOptions options;
  std::string origin;  // "NVRTC", "ptxas", "Triton cache", …
};

void RememberPtx(std::span<const std::byte> cubin, StoredPtx ptx);
// Could a cubin of this size be known? Cheap: for images that would have to be decompressed first.
// Speaks for memory and folder only.
bool MayHavePtx(uint64_t cubin_bytes);
// Memory, then folder, then the caches of frameworks that keep both files (Triton, Inductor).
std::optional<StoredPtx> FindPtx(std::span<const std::byte> cubin);

// The PTX of what a linker makes of these; the only one as it is. Empty if they cannot be linked.
std::string LinkTexts(const std::vector<std::string>& texts);

}  // namespace ops_debug::interposer
