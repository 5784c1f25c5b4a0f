// What kind of code image the program hands to the driver, and the PTX in it
// that would be compiled for this device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "interposer/ptx_store.h"
#include "ptx/result.h"

namespace ops_debug::interposer {

// Compute capability, 9.0 as 90; 0 = not known: any PTX will do.
struct ImageTarget {
  uint32_t arch = 0;
};

struct Image {
  std::string description;         // "PTX text", "fatbin: PTX compute_90 (zstd)", "cubin sm_90"
  std::optional<std::string> ptx;  // text to instrument
  std::string not_checked_reason;  // if there is none
  std::string note;  // how the PTX differs from what would have run, or whence it came
  // Set if the image is machine code, and `ptx` what it was assembled from with these options.
  std::optional<AssemblerOptions> assembled;
};

// An image in this process's memory, as given to cuModuleLoadData and friends.
// Never reads memory that is not mapped.
Image ReadImage(const void* image, ImageTarget target);

// The same for a file, as given to cuModuleLoad. The bytes must be followed by
// a NUL. `path` may be empty; a framework's cache has the PTX beside a cubin's file.
Image ReadImageFile(const std::string& bytes, ImageTarget target, const std::string& path = {});

// Value of `.version` or `.target` in PTX text: "9.0", "sm_90a"; empty if there
// is none.
std::string FindDirective(const std::string& ptx, const char* directive);

}  // namespace ops_debug::interposer
