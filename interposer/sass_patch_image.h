// The device part of the second engine as a cubin for one context: chosen for its device, with the
// context's addresses written into the instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ops_debug::interposer {

// Addresses that the patch works with; see shadow/abi/sass_abi.h.
struct SassPatchAddresses {
  uint64_t directory = 0;
  uint64_t channel = 0;
};

// The cubin that runs on compute capability `arch` (90 for 9.0); empty if there is none.
std::vector<uint64_t> SassPatchCubin(uint32_t arch);

// Replaces every reference to a symbol of `values` in the instructions of `cubin` by the symbol's
// value, and retires the relocation. False: the cubin is not as expected, `*failure` says how.
bool BakeAddresses(std::vector<uint64_t>* cubin,
                   const std::vector<std::pair<std::string_view, uint64_t>>& values,
                   std::string* failure);

// Both; empty on failure.
std::vector<uint64_t> MakeSassPatch(uint32_t arch, const SassPatchAddresses& addresses,
                                    std::string* failure);

}  // namespace ops_debug::interposer
