// The attributes of a reference: what it knows, what was given, and one message for every mistake.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::reference {

enum class AttributeKind : uint8_t {
  kInteger,
  kIntegers,  // one number or a list
  kReal,
  kFlag,
  kWord,     // one of `words`
  kPadding,  // kIntegers, or one of `words`
};

struct AttributeSpec {
  std::string name;
  AttributeKind kind = AttributeKind::kInteger;
  nlohmann::json fallback;  // null: follows from the shapes, or is away
  std::vector<std::string> words;
  bool told = false;  // to other providers even if it has its default: theirs may differ
};

class Attributes {
 public:
  Attributes() = default;
  // Error (kInvalidArgument): a name that the operator does not know, with those that it knows; a
  // value of another kind.
  static absl::StatusOr<Attributes> Read(const std::string& op,
                                         const std::vector<AttributeSpec>& specs,
                                         const nlohmann::json& given);

  // Whether it has a value, by what was given or by its default. The others may be asked only if
  // it has.
  bool Has(const std::string& name) const;
  int64_t Integer(const std::string& name) const;
  double Real(const std::string& name) const;
  bool Flag(const std::string& name) const;
  bool IsWord(const std::string& name) const;
  std::string Word(const std::string& name) const;
  std::vector<int64_t> Integers(const std::string& name) const;
  // One number stands for all. Error: neither one nor `count` numbers, or one below `least` or
  // beyond 2^31.
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, size_t count,
                                                int64_t least) const;
  void Remove(const std::string& name) { values_.erase(name); }
  // Values without the defaults that every provider has.
  nlohmann::json Told(const std::vector<AttributeSpec>& specs) const;
  void Set(const std::string& name, nlohmann::json value) { values_[name] = std::move(value); }

 private:
  std::string op_;
  nlohmann::json values_ = nlohmann::json::object();  // by name; those with a value
};

}  // namespace ops_debug::reference
