// Types by spelling. Qualifiers may stand anywhere ("const int", "int const"), builtin integer
// types may be spelled with their words in any order, and names may be qualified; so a type is
// first reduced to a sorted bag of words.
#include "runner/element.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace ops_debug::runner {
namespace {

struct ScalarInfo {
  ScalarType type;
  std::string_view name;
  uint32_t size_bytes;
  bool floating;
};
constexpr std::array<ScalarInfo, 13> kScalars = {{
    {ScalarType::kBool, "bool", 1, false},
    {ScalarType::kS8, "s8", 1, false},
    {ScalarType::kU8, "u8", 1, false},
    {ScalarType::kS16, "s16", 2, false},
    {ScalarType::kU16, "u16", 2, false},
    {ScalarType::kS32, "s32", 4, false},
    {ScalarType::kU32, "u32", 4, false},
    {ScalarType::kS64, "s64", 8, false},
    {ScalarType::kU64, "u64", 8, false},
    {ScalarType::kF16, "f16", 2, true},
    {ScalarType::kBf16, "bf16", 2, true},
    {ScalarType::kF32, "f32", 4, true},
    {ScalarType::kF64, "f64", 8, true},
}};

const ScalarInfo& Info(ScalarType type) { return kScalars[static_cast<size_t>(type)]; }

struct Spelling {
  std::string_view words;  // sorted, joined by one space
  ScalarType type;
  uint32_t lanes = 1;
};
// Spellings of C++ and CUDA headers. fp8 types count as bytes: every pattern is a value.
constexpr Spelling kSpellings[] = {
    {"bool", ScalarType::kBool},
    {"char", ScalarType::kS8},
    {"char signed", ScalarType::kS8},
    {"char unsigned", ScalarType::kU8},
    {"short", ScalarType::kS16},
    {"int short", ScalarType::kS16},
    {"short signed", ScalarType::kS16},
    {"short unsigned", ScalarType::kU16},
    {"int short unsigned", ScalarType::kU16},
    {"int", ScalarType::kS32},
    {"signed", ScalarType::kS32},
    {"int signed", ScalarType::kS32},
    {"unsigned", ScalarType::kU32},
    {"int unsigned", ScalarType::kU32},
    {"long", ScalarType::kS64},
    {"int long", ScalarType::kS64},
    {"long long", ScalarType::kS64},
    {"int long long", ScalarType::kS64},
    {"long unsigned", ScalarType::kU64},
    {"int long unsigned", ScalarType::kU64},
    {"long long unsigned", ScalarType::kU64},
    {"int long long unsigned", ScalarType::kU64},
    {"float", ScalarType::kF32},
    {"double", ScalarType::kF64},
    {"int8_t", ScalarType::kS8},
    {"uint8_t", ScalarType::kU8},
    {"int16_t", ScalarType::kS16},
    {"uint16_t", ScalarType::kU16},
    {"int32_t", ScalarType::kS32},
    {"uint32_t", ScalarType::kU32},
    {"int64_t", ScalarType::kS64},
    {"uint64_t", ScalarType::kU64},
    {"size_t", ScalarType::kU64},
    {"ptrdiff_t", ScalarType::kS64},
    {"half", ScalarType::kF16},
    {"__half", ScalarType::kF16},
    {"half2", ScalarType::kF16, 2},
    {"__half2", ScalarType::kF16, 2},
    {"nv_bfloat16", ScalarType::kBf16},
    {"__nv_bfloat16", ScalarType::kBf16},
    {"nv_bfloat162", ScalarType::kBf16, 2},
    {"__nv_bfloat162", ScalarType::kBf16, 2},
    {"__nv_fp8_e4m3", ScalarType::kU8},
    {"__nv_fp8_e5m2", ScalarType::kU8},
};
// char1 ... double4
constexpr Spelling kVectorBases[] = {
    {"char", ScalarType::kS8},       {"uchar", ScalarType::kU8},  {"short", ScalarType::kS16},
    {"ushort", ScalarType::kU16},    {"int", ScalarType::kS32},   {"uint", ScalarType::kU32},
    {"long", ScalarType::kS64},      {"ulong", ScalarType::kU64}, {"longlong", ScalarType::kS64},
    {"ulonglong", ScalarType::kU64}, {"float", ScalarType::kF32}, {"double", ScalarType::kF64},
};

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Words of a type without '*' at its end; "std::" and "::" before a name are dropped. False if
// anything else is there.
bool SplitWords(std::string_view text, std::vector<std::string_view>* words) {
  size_t at = 0;
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    } else if (IsWordChar(text[at])) {
      size_t end = at;
      while (end < text.size() && IsWordChar(text[end])) ++end;
      std::string_view word = text.substr(at, end - at);
      const bool is_std = (word == "std" || word == "cuda") && text.substr(end, 2) == "::";
      if (!is_std) words->push_back(word);
      at = is_std ? end + 2 : end;
    } else if (text.substr(at, 2) == "::" && words->empty()) {
      at += 2;
    } else {
      return false;
    }
  }
  return true;
}

std::optional<Element> ElementOf(std::vector<std::string_view> words) {
  std::sort(words.begin(), words.end());
  std::string joined;
  for (std::string_view word : words) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  for (const Spelling& spelling : kSpellings) {
    if (spelling.words == joined) return Element{spelling.type, spelling.lanes};
  }
  if (words.size() == 1 && words[0].back() >= '1' && words[0].back() <= '4') {
    const std::string_view base = words[0].substr(0, words[0].size() - 1);
    for (const Spelling& vector : kVectorBases) {
      if (vector.words == base) {
        return Element{vector.type, static_cast<uint32_t>(words[0].back() - '0')};
      }
    }
  }
  return std::nullopt;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

// Removes a trailing `word` (a whole word); true if it was there.
bool RemoveTrailingWord(std::string_view* text, std::string_view word) {
  if (!text->ends_with(word)) return false;
  const size_t before = text->size() - word.size();
  if (before > 0 && IsWordChar((*text)[before - 1])) return false;
  *text = Trim(text->substr(0, before));
  return true;
}

}  // namespace

uint32_t SizeBytes(ScalarType type) { return Info(type).size_bytes; }
bool IsFloating(ScalarType type) { return Info(type).floating; }
std::string_view Name(ScalarType type) { return Info(type).name; }

std::optional<ScalarType> ScalarTypeFromName(std::string_view name) {
  for (const ScalarInfo& info : kScalars) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::string Element::ToString() const {
  std::string text(Name(scalar));
  if (lanes > 1) text += "x" + std::to_string(lanes);
  return text;
}

ParameterType ParseType(std::string_view text) {
  ParameterType type;
  text = Trim(text);
  type.text = std::string(text);

  // Qualifiers of the parameter itself do not matter to a caller.
  bool again = true;
  while (again) {
    again = false;
    for (std::string_view word : {"const", "volatile", "__restrict__", "__restrict", "restrict"}) {
      if (text.find('*') == std::string_view::npos) break;
      again = RemoveTrailingWord(&text, word) || again;
    }
  }

  const bool pointer = text.ends_with('*');
  if (pointer) text = Trim(text.substr(0, text.size() - 1));
  if (text.find('*') !=
      std::string_view::npos) {  // pointer to pointer, function pointer, pointer to array
    type.kind = pointer ? ParameterType::Kind::kUntypedPointer : ParameterType::Kind::kOpaque;
    type.pointee_const = text.ends_with("const");
    return type;
  }
  std::vector<std::string_view> words;
  const bool plain = SplitWords(text, &words);
  auto is_qualifier = [](std::string_view word) { return word == "const" || word == "volatile"; };
  if (pointer) {
    // Of a type that is not plain words (a template), only a qualifier at one end counts.
    type.pointee_const = plain ? std::find(words.begin(), words.end(), "const") != words.end()
                               : text.ends_with(" const") || text.starts_with("const ");
  }
  std::optional<Element> element;
  if (plain) {
    std::erase_if(words, is_qualifier);
    element = ElementOf(words);
  }
  if (element.has_value()) {
    type.element = *element;
    type.kind = pointer ? ParameterType::Kind::kPointer : ParameterType::Kind::kScalar;
  } else {
    type.kind = pointer ? ParameterType::Kind::kUntypedPointer : ParameterType::Kind::kOpaque;
  }
  return type;
}

}  // namespace ops_debug::runner
