#include "analysis/reference/attributes.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace ops_debug::reference {
namespace {

using Json = nlohmann::json;

// What frameworks call the same thing.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"dim", "axis"},         {"axes", "axis"},
    {"keepdims", "keepdim"}, {"is_causal", "causal"},
    {"epsilon", "eps"},      {"dims", "permutation"},
    {"perm", "permutation"}, {"p", "order"},
    {"ord", "order"},        {"unbiased", "correction"},
    {"ddof", "correction"},
};

bool IsIntegers(const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [](const Json& item) { return item.is_number_integer(); });
  }
  return value.is_number_integer();
}

bool IsKind(const AttributeSpec& spec, const Json& value) {
  const bool is_word = value.is_string() && std::count(spec.words.begin(), spec.words.end(),
                                                       value.get<std::string>()) != 0;
  switch (spec.kind) {
    case AttributeKind::kInteger:
      return value.is_number_integer();
    case AttributeKind::kIntegers:
      return IsIntegers(value);
    case AttributeKind::kReal:
      return value.is_number();
    case AttributeKind::kFlag:
      return value.is_boolean();
    case AttributeKind::kWord:
      return is_word;
    case AttributeKind::kPadding:
      return is_word || IsIntegers(value);
  }
  return false;
}

// Other spellings of the same value: 0 and 1 for a flag (a kernel's int), 2.0 for 2, [3] for 3.
Json Plain(const AttributeSpec& spec, Json value) {
  if (spec.kind == AttributeKind::kFlag && value.is_number_integer() &&
      (value == 0 || value == 1)) {
    return value == 1;
  }
  if (spec.kind == AttributeKind::kInteger && value.is_boolean()) return value == true ? 1 : 0;
  if (spec.kind == AttributeKind::kInteger && value.is_array() && value.size() == 1) {
    value = Json(value[0]);
  }
  const bool whole = value.is_number_float() && value.get<double>() > -9e15 &&
                     value.get<double>() < 9e15 &&
                     value.get<double>() == static_cast<double>(value.get<int64_t>());
  return whole && spec.kind != AttributeKind::kReal ? Json(value.get<int64_t>()) : value;
}

std::string Wanted(const AttributeSpec& spec) {
  switch (spec.kind) {
    case AttributeKind::kInteger:
      return "a whole number";
    case AttributeKind::kIntegers:
      return "a whole number or a list of them";
    case AttributeKind::kReal:
      return "a number";
    case AttributeKind::kFlag:
      return "true or false";
    case AttributeKind::kWord:
      return absl::StrCat("one of ", absl::StrJoin(spec.words, ", "));
    case AttributeKind::kPadding:
      return absl::StrCat("a whole number, a list of them, or one of ",
                          absl::StrJoin(spec.words, ", "));
  }
  return "";
}

}  // namespace

absl::StatusOr<Attributes> Attributes::Read(const std::string& op,
                                            const std::vector<AttributeSpec>& specs,
                                            const Json& given) {
  Attributes attributes;
  attributes.op_ = op;
  if (!given.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": attributes must be a JSON object, not ", given.dump()));
  }
  for (const AttributeSpec& spec : specs) {
    if (!spec.fallback.is_null()) attributes.values_[spec.name] = spec.fallback;
  }
  for (const auto& [name, value] : given.items()) {
    const auto named = [&](std::string_view wanted) {
      return std::find_if(specs.begin(), specs.end(),
                          [&](const AttributeSpec& known) { return known.name == wanted; });
    };
    auto spec = named(name);
    for (const auto& [other, ours] : kAliases) {
      if (spec == specs.end() && other == name) spec = named(ours);
    }
    if (spec == specs.end()) {
      std::vector<std::string> known;
      for (const AttributeSpec& item : specs) known.push_back(item.name);
      return absl::InvalidArgumentError(
          absl::StrCat(op, ": unknown attribute '", name, "'; it has ",
                       known.empty() ? "none" : absl::StrJoin(known, ", ")));
    }
    if (value.is_null()) continue;  // None: the default
    const Json plain = Plain(*spec, value);
    if (!IsKind(*spec, plain)) {
      return absl::InvalidArgumentError(absl::StrCat(op, ": attribute '", name, "' must be ",
                                                     Wanted(*spec), ", not ", value.dump()));
    }
    attributes.values_[spec->name] = plain;
  }
  return attributes;
}

bool Attributes::Has(const std::string& name) const { return values_.contains(name); }
int64_t Attributes::Integer(const std::string& name) const { return values_.at(name); }
double Attributes::Real(const std::string& name) const { return values_.at(name); }
bool Attributes::Flag(const std::string& name) const { return values_.at(name); }
bool Attributes::IsWord(const std::string& name) const { return values_.at(name).is_string(); }
std::string Attributes::Word(const std::string& name) const { return values_.at(name); }

Json Attributes::Told(const std::vector<AttributeSpec>& specs) const {
  Json told = Json::object();
  for (const AttributeSpec& spec : specs) {
    if (!Has(spec.name)) continue;
    const Json& value = values_.at(spec.name);
    if (spec.told || value != spec.fallback) told[spec.name] = value;
  }
  return told;
}

std::vector<int64_t> Attributes::Integers(const std::string& name) const {
  const Json& value = values_.at(name);
  if (value.is_array()) return value.get<std::vector<int64_t>>();
  return {value.get<int64_t>()};
}

absl::StatusOr<std::vector<int64_t>> Attributes::Integers(const std::string& name, size_t count,
                                                          int64_t least) const {
  std::vector<int64_t> numbers = Integers(name);
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  const bool outside = std::any_of(numbers.begin(), numbers.end(), [&](int64_t number) {
    return number < least || number > INT32_MAX;
  });
  if (numbers.size() != count || outside) {
    return absl::InvalidArgumentError(absl::StrCat(op_, ": attribute '", name, "' must be 1 or ",
                                                   count, " numbers of at least ", least, ", not ",
                                                   values_.at(name).dump()));
  }
  return numbers;
}

}  // namespace ops_debug::reference
