// yaml-cpp reads the file and knows the lines.
#include "analysis/validate/operator_book.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>

namespace ops_debug::analysis {
namespace {

constexpr char kFileName[] = "ops-debug.yaml";

class BookReader {
 public:
  explicit BookReader(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<OperatorBook> Read() {
    YAML::Node root;
    try {
      root = YAML::LoadFile(path_);
    } catch (const YAML::Exception& error) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ":", error.mark.line + 1, ": ", error.msg));
    }
    OperatorBook book;
    book.path = path_;
    const YAML::Node operators = root.IsMap() ? root["operators"] : YAML::Node();
    if (!operators) return book;  // keys of other commands
    if (!operators.IsMap()) return Wrong(operators, "\"operators\" must map names to operators");
    for (const auto& item : operators) {
      OperatorEntry entry;
      entry.name = item.first.Scalar();
      entry.place = Place(item.first);
      if (absl::Status status = ReadOperator(item.second, &entry); !status.ok()) return status;
      book.operators[entry.name] = entry;
    }
    return book;
  }

 private:
  std::string Place(const YAML::Node& node) const {
    return absl::StrCat(path_, ":", node.Mark().line + 1);
  }
  absl::Status Wrong(const YAML::Node& node, const std::string& text) const {
    return absl::InvalidArgumentError(absl::StrCat(Place(node), ": ", text));
  }

  absl::Status ReadOperator(const YAML::Node& node, OperatorEntry* entry) {
    if (!node.IsMap()) return Wrong(node, "an operator is a map with the key \"provider\"");
    for (const auto& item : node) {
      const std::string key = item.first.Scalar();
      const YAML::Node& value = item.second;
      absl::Status status;
      if (key == "provider") {
        status = ReadText(key, value, &entry->provider);
      } else if (key == "entry") {
        status = ReadText(key, value, &entry->entry);
      } else if (key == "reference") {
        status = ReadText(key, value, &entry->reference);
      } else if (key == "rtol") {
        status = ReadTolerance(key, value, &entry->rtol);
      } else if (key == "atol") {
        status = ReadTolerance(key, value, &entry->atol);
      } else if (key == "backward") {
        status = ReadList(key, value, &entry->backward);
      } else if (key == "attributes") {
        status = ReadAttributes(value, entry);
      } else if (key == "inputs") {
        status = ReadInputs(value, entry);
      } else {
        status = Wrong(item.first, absl::StrCat("unknown key \"", key,
                                                "\"; an operator has provider, entry, backward, "
                                                "reference, attributes, inputs, rtol, atol"));
      }
      if (!status.ok()) return status;
    }
    if (entry->provider.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry->place, ": operator \"", entry->name, "\" has no provider"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadText(const std::string& key, const YAML::Node& value, std::string* text) {
    if (!value.IsScalar()) return Wrong(value, absl::StrCat("\"", key, "\" must be a text"));
    *text = value.Scalar();
    return absl::OkStatus();
  }

  absl::Status ReadTolerance(const std::string& key, const YAML::Node& value,
                             std::optional<double>* tolerance) {
    double number = 0;
    if (!value.IsScalar() || !absl::SimpleAtod(value.Scalar(), &number) || !(number >= 0)) {
      return Wrong(value, absl::StrCat("\"", key, "\" must be a number that is not negative"));
    }
    *tolerance = number;
    return absl::OkStatus();
  }

  // A list, or a text with commas.
  absl::Status ReadList(const std::string& key, const YAML::Node& value,
                        std::vector<std::string>* items) {
    if (value.IsScalar()) {
      for (const absl::string_view item : absl::StrSplit(value.Scalar(), ',', absl::SkipEmpty())) {
        items->emplace_back(absl::StripAsciiWhitespace(item));
      }
      return absl::OkStatus();
    }
    if (!value.IsSequence()) return Wrong(value, absl::StrCat("\"", key, "\" must be a list"));
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) {
        return Wrong(item, absl::StrCat("\"", key, "\" must hold texts or numbers"));
      }
      items->push_back(item.Scalar());
    }
    return absl::OkStatus();
  }

  absl::Status ReadAttributes(const YAML::Node& node, OperatorEntry* entry) {
    if (!node.IsMap()) return Wrong(node, "\"attributes\" must map names to values");
    for (const auto& item : node) {
      if (item.second.IsMap()) return Wrong(item.second, "an attribute is a value or a list");
      YAML::Emitter text;  // lists in flow style are JSON
      text << YAML::Flow << item.second;
      entry->attributes.emplace_back(item.first.Scalar(),
                                     item.second.IsScalar() ? item.second.Scalar() : text.c_str());
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs(const YAML::Node& node, OperatorEntry* entry) {
    if (!node.IsMap()) return Wrong(node, "\"inputs\" must map names to {shape, dtype, contents}");
    for (const auto& item : node) {
      OperatorInput input;
      input.name = item.first.Scalar();
      if (!item.second.IsMap() && !item.second.IsNull()) {
        return Wrong(item.second, "an input is a map of shape, dtype and contents");
      }
      for (const auto& field : item.second) {
        const std::string key = field.first.Scalar();
        absl::Status status;
        if (key == "shape") {
          status = ReadList(key, field.second, &input.shape);
        } else if (key == "dtype") {
          status = ReadText(key, field.second, &input.dtype);
        } else if (key == "contents") {
          status = ReadText(key, field.second, &input.contents);
        } else {
          status = Wrong(field.first, absl::StrCat("unknown key \"", key,
                                                   "\"; an input has shape, dtype, contents"));
        }
        if (!status.ok()) return status;
      }
      entry->inputs.push_back(input);
    }
    return absl::OkStatus();
  }

  const std::string path_;
};

// Recursive descent: sum := product {(+|-) product}; product := atom {(*|/) atom}.
class Evaluator {
 public:
  Evaluator(const std::string& text, const ExpressionNames& names) : text_(text), names_(names) {}

  absl::StatusOr<int64_t> Whole() {
    absl::StatusOr<int64_t> value = Sum();
    if (!value.ok()) return value;
    if (Skip() != '\0') return Wrong(absl::StrCat("\"", text_.substr(at_), "\" is too much"));
    return value;
  }

 private:
  static constexpr int kMostNested = 64;

  absl::Status Wrong(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat("expression \"", text_, "\": ", why));
  }
  char Skip() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  absl::StatusOr<int64_t> Sum() {
    absl::StatusOr<int64_t> left = Product();
    for (char sign = Skip(); left.ok() && (sign == '+' || sign == '-'); sign = Skip()) {
      ++at_;
      const absl::StatusOr<int64_t> right = Product();
      if (!right.ok()) return right;
      const bool wraps = sign == '+' ? __builtin_add_overflow(*left, *right, &*left)
                                     : __builtin_sub_overflow(*left, *right, &*left);
      if (wraps) return Wrong("the number is too large");
    }
    return left;
  }

  absl::StatusOr<int64_t> Product() {
    absl::StatusOr<int64_t> left = Atom();
    for (char sign = Skip(); left.ok() && (sign == '*' || sign == '/'); sign = Skip()) {
      ++at_;
      const absl::StatusOr<int64_t> right = Atom();
      if (!right.ok()) return right;
      if (sign == '*') {
        if (__builtin_mul_overflow(*left, *right, &*left)) return Wrong("the number is too large");
      } else if (*right <= 0 || *left % *right != 0) {
        return Wrong(absl::StrCat(*left, " / ", *right, " is not whole"));
      } else {
        *left /= *right;
      }
    }
    return left;
  }

  absl::StatusOr<int64_t> Atom() {
    if (Skip() == '(') {
      ++at_;
      if (++nested_ > kMostNested) return Wrong("too many parentheses");
      absl::StatusOr<int64_t> value = Sum();
      if (!value.ok()) return value;
      if (Skip() != ')') return Wrong("a parenthesis is not closed");
      ++at_;
      --nested_;
      return value;
    }
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalnum(text_[at_]) || text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    const std::string word = text_.substr(begin, at_ - begin);
    int64_t number = 0;
    if (absl::SimpleAtoi(word, &number)) return number;
    if (word.empty()) return Wrong("a number or a name is missing");
    return Named(word);
  }

  absl::StatusOr<int64_t> Named(const std::string& word) const {
    if (const auto found = names_.numbers.find(word); found != names_.numbers.end()) {
      return found->second;
    }
    const size_t dot = word.rfind('.');
    const auto shape = names_.shapes.find(word.substr(0, dot));
    if (dot == std::string::npos || shape == names_.shapes.end()) {
      return Wrong(absl::StrCat("\"", word, "\" is neither NAME.dimN nor NAME.size of an input ",
                                "further up, nor an attribute that is a whole number"));
    }
    const std::string part = word.substr(dot + 1);
    if (part == "size") {
      int64_t size = 1;
      for (const int64_t dimension : shape->second) size *= dimension;
      return size;
    }
    size_t axis = 0;
    if (part.rfind("dim", 0) != 0 || !absl::SimpleAtoi(part.substr(3), &axis)) {
      return Wrong(absl::StrCat("\"", word, "\": after the dot stands size, dim0, dim1, ..."));
    }
    if (axis >= shape->second.size()) {
      return Wrong(
          absl::StrCat("\"", word, "\": the input has ", shape->second.size(), " dimensions only"));
    }
    return shape->second[axis];
  }

  const std::string& text_;
  const ExpressionNames& names_;
  size_t at_ = 0;
  int nested_ = 0;
};

}  // namespace

absl::StatusOr<OperatorBook> ReadOperatorBook(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kFileName).string();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return OperatorBook{};
  // What a user reads is short where the file lies in the current folder.
  return BookReader(folder == "." ? kFileName : path).Read();
}

absl::StatusOr<int64_t> EvaluateExpression(const std::string& text, const ExpressionNames& names) {
  return Evaluator(text, names).Whole();
}

}  // namespace ops_debug::analysis
