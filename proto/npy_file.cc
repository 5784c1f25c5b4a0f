// The header is a Python literal, of which only the dict that NumPy writes is understood: strings,
// bools, integers and tuples of them. Fortran order becomes strides; nothing is transposed.
#include "proto/npy_file.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace ops_debug::proto {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kVersionAt = 6, kLengthAt = 8;

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// A cursor in the header's text. Each Take returns whether the thing was there, and then stands
// behind it.
class HeaderText {
 public:
  HeaderText(std::string_view text, uint64_t start) : text_(text), start_(start) {}

  bool TakeSign(char sign) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != sign) return false;
    ++at_;
    return true;
  }

  bool TakeString(std::string* value) {
    SkipBlanks();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    *value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }

  bool TakeBool(bool* value) {
    SkipBlanks();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      *value = word == "True";
      at_ += word.size();
      return true;
    }
    return false;
  }

  bool TakeSize(int64_t* value) {
    SkipBlanks();
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), *value);
    if (error != std::errc() || *value < 0) return false;
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return true;
  }

  bool TakeShape(std::vector<int64_t>* shape) {
    if (!TakeSign('(')) return false;
    while (!TakeSign(')')) {
      int64_t size = 0;
      if (!TakeSize(&size)) return false;
      shape->push_back(size);
      if (!TakeSign(',')) return TakeSign(')');
    }
    return true;
  }

  bool AtSign(char sign) {
    SkipBlanks();
    return at_ < text_.size() && text_[at_] == sign;
  }

  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }

  uint64_t position() const { return start_ + at_; }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  uint64_t start_;
  size_t at_ = 0;
};

absl::Status BadHeader(const HeaderText& text, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("bad header of an array at byte ", text.position(), ": expected ", expected));
}

absl::StatusOr<NpyHeader> ParseHeader(HeaderText text) {
  NpyHeader header;
  bool has_descr = false, has_order = false, has_shape = false;
  if (!text.TakeSign('{')) return BadHeader(text, "{");
  while (!text.TakeSign('}')) {
    std::string key;
    if (!text.TakeString(&key)) return BadHeader(text, "a key");
    if (!text.TakeSign(':')) return BadHeader(text, ":");
    if (key == "descr" && !has_descr) {
      if (text.AtSign('[')) {
        return absl::UnimplementedError(
            "arrays of records (structured dtypes) are not compared; save each field on its own: "
            "numpy.savez(file, **{name: array[name] for name in array.dtype.names})");
      }
      has_descr = text.TakeString(&header.descr);
      if (!has_descr) return BadHeader(text, "a type such as '<f4'");
    } else if (key == "fortran_order" && !has_order) {
      has_order = text.TakeBool(&header.fortran_order);
      if (!has_order) return BadHeader(text, "True or False");
    } else if (key == "shape" && !has_shape) {
      has_shape = text.TakeShape(&header.shape);
      if (!has_shape) return BadHeader(text, "a tuple of sizes");
    } else {
      return BadHeader(text, "only descr, fortran_order and shape, each once");
    }
    if (!text.TakeSign(',') && !text.AtSign('}')) return BadHeader(text, ", or }");
  }
  if (!text.AtEnd()) return BadHeader(text, "nothing behind }");
  if (!has_descr || !has_order || !has_shape) {
    return BadHeader(text, "descr, fortran_order and shape");
  }
  if (header.shape.size() > kMostDimensions) {
    return absl::InvalidArgumentError(absl::StrCat("an array of ", header.shape.size(),
                                                   " dimensions; at most ", kMostDimensions,
                                                   " are read"));
  }
  return header;
}

absl::Status UnknownType(const std::string& descr) {
  const std::string_view kind = std::string_view(descr).substr(std::min<size_t>(1, descr.size()));
  if (kind.starts_with("V")) {
    return absl::UnimplementedError(absl::StrCat(
        "type '", descr,
        "' says only how long an element is: so NumPy writes bfloat16 and float8 of ml_dtypes. "
        "Save them as .safetensors, or as float32: numpy.save(file, array.astype('float32'))"));
  }
  if (kind.starts_with("O")) {
    return absl::UnimplementedError(
        "an array of Python objects; only numbers are compared: array.astype('float64')");
  }
  return absl::UnimplementedError(absl::StrCat(
      "type '", descr,
      "' is not known; convert it: numpy.save(file, array.astype('float64')), or 'int64'"));
}

// Complex numbers are two floats, each of its own byte order.
uint32_t SwappedBytes(DType dtype) {
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  return is_complex ? ElementBytes(dtype) / 2 : ElementBytes(dtype);
}

void SwapByteOrder(uint64_t bytes, Tensor* tensor) {
  auto swapped = std::make_shared<std::vector<std::byte>>(tensor->data, tensor->data + bytes);
  const uint32_t step = SwappedBytes(tensor->dtype);
  for (uint64_t at = 0; at < bytes; at += step) {
    std::reverse(swapped->begin() + static_cast<std::ptrdiff_t>(at),
                 swapped->begin() + static_cast<std::ptrdiff_t>(at + step));
  }
  tensor->data = swapped->data();
  tensor->owner = std::move(swapped);
}

}  // namespace

bool LooksLikeNpy(const ByteRange& file) {
  return file.Holds(0, kMagic.size()) && std::memcmp(file.data, kMagic.data(), kMagic.size()) == 0;
}

absl::StatusOr<Tensor> ReadNpy(const ByteRange& file) {
  if (!LooksLikeNpy(file)) {
    return absl::InvalidArgumentError("is no .npy: its first bytes are not \\x93NUMPY");
  }
  const absl::Status truncated = absl::DataLossError(
      absl::StrCat("truncated: it ends at byte ", file.size, ", within the header"));
  if (!file.Holds(kVersionAt, 2)) return truncated;
  const auto version = file.Number<uint8_t>(kVersionAt);
  if (version < 1 || version > 3) {
    return absl::UnimplementedError(absl::StrCat("version ", version,
                                                 " of the .npy format at byte ", kVersionAt,
                                                 "; versions 1 to 3 are known"));
  }
  const uint64_t length_bytes = version == 1 ? 2 : 4;
  if (!file.Holds(kLengthAt, length_bytes)) return truncated;
  const uint64_t length =
      version == 1 ? file.Number<uint16_t>(kLengthAt) : file.Number<uint32_t>(kLengthAt);
  const uint64_t start = kLengthAt + length_bytes;
  if (!file.Holds(start, length)) return truncated;
  const std::string_view text(reinterpret_cast<const char*>(file.data) + start, length);
  absl::StatusOr<NpyHeader> header = ParseHeader(HeaderText(text, start));
  if (!header.ok()) return header.status();

  Tensor tensor;
  std::string descr = header->descr;
  const bool swap = descr.starts_with('>');
  if (swap) descr[0] = '<';
  if (!ParseDType(descr, &tensor.dtype)) return UnknownType(header->descr);
  tensor.shape = std::move(header->shape);
  const uint64_t data_at = start + length;
  uint64_t bytes = 0;
  if (!DenseBytes(tensor.shape, ElementBytes(tensor.dtype), &bytes) ||
      !file.Holds(data_at, bytes)) {
    return absl::DataLossError(absl::StrCat(
        "truncated: it ends at byte ", file.size, "; the elements, from byte ", data_at,
        " on, need ", bytes == 0 ? "more than fits any memory" : absl::StrCat(bytes, " bytes")));
  }
  if (data_at + bytes != file.size) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.size - data_at - bytes, " bytes follow the array, which ends at byte ",
                     data_at + bytes, "; several arrays in one file: numpy.savez"));
  }
  tensor.data = file.data + data_at;
  tensor.owner = file.owner;
  if (header->fortran_order && bytes != 0) {
    int64_t stride = 1;
    for (const int64_t size : tensor.shape) {
      tensor.strides.push_back(stride);
      stride *= size;
    }
  }
  if (swap && bytes != 0) SwapByteOrder(bytes, &tensor);
  return tensor;
}

}  // namespace ops_debug::proto
