// Tensors of a launch as text: element types of a kernel's signature, statistics, and the header of
// a .safetensors file (https://github.com/huggingface/safetensors, "Format"). No library: this is
// linked into the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ops_debug::interposer {

// A parameter as a demangled signature spells it.
struct ParameterType {
  std::string element;  // safetensors' name: "F32", "BF16", "U8"; empty: no pointer to numbers
  bool is_const = false;
};
// "void k<8>(float const*, int, __half*)" -> F32 const, none, F16. Empty if the name has no
// parameters.
std::vector<ParameterType> ParametersOf(std::string_view demangled);
// "void ns::k<8>(float const*, int)" -> "ns::k<8>", with what no file name should hold replaced by
// '_', at most 100 bytes.
std::string FileNameOf(std::string_view demangled);

// "float32" (a framework's name) -> "F32"; empty: not known.
std::string ElementOfFramework(std::string_view dtype);
uint32_t BytesOfElement(std::string_view element);

// {"count":4,"nan":0,"inf":0,"min":-1,"max":2,"mean":0.5,"l2":2.4}; of the finite elements.
// Infinities and NaN do not occur in it.
std::string StatisticsOf(std::string_view element, std::span<const char> bytes);

std::string QuotedJson(std::string_view text);

struct TensorOfFile {
  std::string name;
  std::string element;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};
// Length field and JSON, padded to a multiple of 8 bytes. `metadata`: pairs of key and text.
std::string SafetensorsHeader(const std::vector<TensorOfFile>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace ops_debug::interposer
