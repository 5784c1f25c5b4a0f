// See tensor_text.h.
#include "interposer/tensor_text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace ops_debug::interposer {
namespace {

constexpr size_t kLongestFileName = 100;

struct TypeName {
  std::string_view spelled, element;
};
constexpr TypeName kCppTypes[] = {{"float", "F32"},
                                  {"double", "F64"},
                                  {"__half", "F16"},
                                  {"half", "F16"},
                                  {"__nv_bfloat16", "BF16"},
                                  {"__nv_fp8_e4m3", "F8_E4M3"},
                                  {"__nv_fp8_e5m2", "F8_E5M2"},
                                  {"bool", "BOOL"},
                                  {"char", "I8"},
                                  {"signed char", "I8"},
                                  {"unsigned char", "U8"},
                                  {"short", "I16"},
                                  {"unsigned short", "U16"},
                                  {"int", "I32"},
                                  {"unsigned int", "U32"},
                                  {"long", "I64"},
                                  {"unsigned long", "U64"},
                                  {"long long", "I64"},
                                  {"unsigned long long", "U64"}};
constexpr TypeName kFrameworkTypes[] = {{"float32", "F32"},
                                        {"float64", "F64"},
                                        {"float16", "F16"},
                                        {"bfloat16", "BF16"},
                                        {"bool", "BOOL"},
                                        {"int8", "I8"},
                                        {"uint8", "U8"},
                                        {"int16", "I16"},
                                        {"uint16", "U16"},
                                        {"int32", "I32"},
                                        {"uint32", "U32"},
                                        {"int64", "I64"},
                                        {"uint64", "U64"},
                                        {"float8_e4m3fn", "F8_E4M3"},
                                        {"float8_e5m2", "F8_E5M2"},
                                        {"complex64", "C64"}};
constexpr struct {
  std::string_view element;
  uint32_t bytes;
} kWidths[] = {{"F32", 4},  {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
               {"BOOL", 1}, {"I8", 1},  {"U8", 1},  {"I16", 2},  {"U16", 2},     {"I32", 4},
               {"U32", 4},  {"I64", 8}, {"U64", 8}, {"C64", 8}};

// Where the parameter list of a demangled function begins: the last '(' outside of brackets; npos:
// none.
size_t ParametersBegin(std::string_view demangled) {
  if (demangled.empty() || demangled.back() != ')') return std::string_view::npos;
  int depth = 0;
  for (size_t i = demangled.size(); i-- > 0;) {
    if (demangled[i] == ')') ++depth;
    if (demangled[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool TakeSuffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  *text = Trimmed(*text);
  return true;
}

// "float const*" and "float const* __restrict__".
ParameterType TypeOf(std::string_view text) {
  text = Trimmed(text);
  while (TakeSuffix(&text, "__restrict__") || TakeSuffix(&text, " const")) {
  }
  ParameterType type;
  if (!TakeSuffix(&text, "*")) return type;
  type.is_const = TakeSuffix(&text, " const");
  TakeSuffix(&text, " volatile");
  for (const TypeName& known : kCppTypes) {
    if (text == known.spelled) type.element = known.element;
  }
  return type;
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  const float magnitude = rest < 0x0400 ? static_cast<float>(rest) * 0x1p-24f
                                        : std::bit_cast<float>((rest << 13) + (112u << 23));
  return sign != 0 ? -magnitude : magnitude;
}

struct Statistics {
  uint64_t count = 0, nan = 0, inf = 0;
  double min = INFINITY, max = -INFINITY, sum = 0, squares = 0;

  void Add(double value) {
    ++count;
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      min = std::min(min, value);
      max = std::max(max, value);
      sum += value;
      squares += value * value;
    }
  }
};

template <class Stored, class Decode>
void AddAll(std::span<const char> bytes, Statistics* statistics, Decode decode) {
  for (size_t at = 0; at + sizeof(Stored) <= bytes.size(); at += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + at, sizeof stored);
    statistics->Add(decode(stored));
  }
}

template <class Stored>
void AddAll(std::span<const char> bytes, Statistics* statistics) {
  AddAll<Stored>(bytes, statistics, [](Stored value) { return static_cast<double>(value); });
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::vector<ParameterType> ParametersOf(std::string_view demangled) {
  std::vector<ParameterType> types;
  const size_t begin = ParametersBegin(demangled);
  if (begin == std::string_view::npos) return types;
  const std::string_view list = demangled.substr(begin + 1, demangled.size() - begin - 2);
  if (Trimmed(list).empty()) return types;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= list.size(); i++) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '<' || c == '(' || c == '[' || c == '{') ++depth;
    if (c == '>' || c == ')' || c == ']' || c == '}') --depth;
    if (c != ',' || (depth != 0 && i < list.size())) continue;
    types.push_back(TypeOf(list.substr(start, i - start)));
    start = i + 1;
  }
  return types;
}

std::string FileNameOf(std::string_view demangled) {
  const size_t end = ParametersBegin(demangled);
  std::string_view name = Trimmed(demangled.substr(0, end));
  // A template's name begins with its return type.
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>' || name[i] == ')') ++depth;
    if (name[i] == '<' || name[i] == '(') --depth;
    if (name[i] == ' ' && depth == 0) {
      name.remove_prefix(i + 1);
      break;
    }
  }
  std::string file;
  for (const char c : name.substr(0, kLongestFileName)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '-' || c == '.';
    file += plain ? c : '_';
  }
  if (file.empty() || file[0] == '.') file.insert(file.begin(), '_');
  return file;
}

std::string ElementOfFramework(std::string_view dtype) {
  for (const TypeName& known : kFrameworkTypes) {
    if (dtype == known.spelled) return std::string(known.element);
  }
  return {};
}

uint32_t BytesOfElement(std::string_view element) {
  for (const auto& known : kWidths) {
    if (element == known.element) return known.bytes;
  }
  return 0;
}

std::string StatisticsOf(std::string_view element, std::span<const char> bytes) {
  Statistics found;
  const auto bfloat = [](uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16));
  };
  const auto half = [](uint16_t bits) { return static_cast<double>(HalfToFloat(bits)); };
  if (element == "F32" || element == "C64") AddAll<float>(bytes, &found);
  if (element == "F64") AddAll<double>(bytes, &found);
  if (element == "F16") AddAll<uint16_t>(bytes, &found, half);
  if (element == "BF16") AddAll<uint16_t>(bytes, &found, bfloat);
  // e5m2 is the upper half of a half.
  if (element == "F8_E5M2") {
    AddAll<uint8_t>(bytes, &found,
                    [&](uint8_t bits) { return half(static_cast<uint16_t>(uint32_t{bits} << 8)); });
  }
  if (element == "I8") AddAll<int8_t>(bytes, &found);
  if (element == "U8" || element == "BOOL") AddAll<uint8_t>(bytes, &found);
  if (element == "I16") AddAll<int16_t>(bytes, &found);
  if (element == "U16") AddAll<uint16_t>(bytes, &found);
  if (element == "I32") AddAll<int32_t>(bytes, &found);
  if (element == "U32") AddAll<uint32_t>(bytes, &found);
  if (element == "I64") AddAll<int64_t>(bytes, &found);
  if (element == "U64") AddAll<uint64_t>(bytes, &found);
  std::string text = "{\"count\":" + std::to_string(found.count) +
                     ",\"nan\":" + std::to_string(found.nan) +
                     ",\"inf\":" + std::to_string(found.inf);
  const uint64_t finite = found.count - found.nan - found.inf;
  if (finite > 0) {
    text += ",\"min\":" + Number(found.min) + ",\"max\":" + Number(found.max) +
            ",\"mean\":" + Number(found.sum / static_cast<double>(finite));
    if (std::isfinite(found.squares)) text += ",\"l2\":" + Number(std::sqrt(found.squares));
  }
  return text + '}';
}

std::string QuotedJson(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string SafetensorsHeader(const std::vector<TensorOfFile>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::string json = "{\"__metadata__\":{";
  for (size_t i = 0; i < metadata.size(); i++) {
    json +=
        (i == 0 ? "" : ",") + QuotedJson(metadata[i].first) + ':' + QuotedJson(metadata[i].second);
  }
  json += '}';
  uint64_t offset = 0;
  for (const TensorOfFile& tensor : tensors) {
    json += ',' + QuotedJson(tensor.name) + ":{\"dtype\":" + QuotedJson(tensor.element) +
            ",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); i++)
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(offset) + ',' +
            std::to_string(offset + tensor.bytes) + "]}";
    offset += tensor.bytes;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace ops_debug::interposer
