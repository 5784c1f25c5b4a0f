// As strict as the format's own reader: the tensors cover the bytes behind the header, none twice
// and none left over, so that a cut or mixed-up file cannot pass for a whole one.
#include "proto/safetensors_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace ops_debug::proto {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr char kMetadataKey[] = "__metadata__";
constexpr char kTypePrefix[] = "dtype.";

struct SafetensorsType {
  DType dtype;
  const char* name;
};
constexpr std::array<SafetensorsType, 18> kTypes = {{
    {DType::kBool, "BOOL"},
    {DType::kInt8, "I8"},
    {DType::kUint8, "U8"},
    {DType::kInt16, "I16"},
    {DType::kUint16, "U16"},
    {DType::kInt32, "I32"},
    {DType::kUint32, "U32"},
    {DType::kInt64, "I64"},
    {DType::kUint64, "U64"},
    {DType::kFloat8E4M3, "F8_E4M3"},
    {DType::kFloat8E5M2, "F8_E5M2"},
    {DType::kFloat16, "F16"},
    {DType::kBfloat16, "BF16"},
    {DType::kFloat32, "F32"},
    {DType::kFloat64, "F64"},
    {DType::kComplex64, "C64"},
    {DType::kComplex128, "C128"},
    {DType::kTf32, "F32"},  // behind float32, which is what F32 reads as
}};

const char* NameInFile(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [dtype](const SafetensorsType& type) { return type.dtype == dtype; })
      ->name;
}

// The keys of the top level in the order of the text, which a parsed object forgets. (A parser
// callback would tell them, too, but looks at all tensors again behind each one.)
class KeyCollector : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    if (!seen_.insert(name).second) duplicate = name;
    keys.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  std::vector<std::string> keys;
  std::string duplicate;  // empty: none

 private:
  bool Enter() {
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  std::set<std::string> seen_;
};

struct Header {
  Json json;
  std::vector<std::string> keys;
};

absl::StatusOr<Header> ParseHeader(std::string_view text) {
  KeyCollector collector;
  Header header;
  if (Json::sax_parse(text, &collector)) {
    header.json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  if (!header.json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header, ", text.size(), " bytes from byte ", kLengthBytes,
                     " on, is no JSON object; is it a .safetensors file?"));
  }
  if (!collector.duplicate.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("two tensors have the name \"", collector.duplicate, "\""));
  }
  header.keys = std::move(collector.keys);
  return header;
}

struct Placed {
  Tensor tensor;
  uint64_t begin = 0, end = 0;
};

absl::Status BadEntry(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", what));
}

absl::StatusOr<Placed> ReadEntry(const std::string& name, const Json& entry,
                                 const ByteRange& content, uint64_t content_at) {
  if (!entry.is_object()) return BadEntry(name, "its header entry is no JSON object");
  const auto type = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (type == entry.end() || shape == entry.end() || offsets == entry.end() || !type->is_string() ||
      !shape->is_array() || !offsets->is_array() || offsets->size() != 2) {
    return BadEntry(name, "its header entry lacks dtype, shape or data_offsets");
  }
  Placed placed;
  placed.tensor.name = name;
  const std::string& type_name = type->get_ref<const std::string&>();
  const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](const SafetensorsType& row) {
    return type_name == row.name;
  });
  if (known == kTypes.end()) {
    return absl::UnimplementedError(
        absl::StrCat("tensor \"", name, "\": type \"", type_name, "\" is not known"));
  }
  placed.tensor.dtype = known->dtype;
  if (shape->size() > kMostDimensions) return BadEntry(name, "it has too many dimensions");
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
      return BadEntry(name, "a size in its shape is no count");
    }
    placed.tensor.shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
  }
  uint64_t bytes = 0;
  if (!DenseBytes(placed.tensor.shape, ElementBytes(placed.tensor.dtype), &bytes)) {
    return BadEntry(name, "its shape holds more elements than can be counted");
  }
  for (const Json& offset : *offsets) {
    if (!offset.is_number_unsigned()) return BadEntry(name, "data_offsets are no byte offsets");
  }
  placed.begin = (*offsets)[0].get<uint64_t>();
  placed.end = (*offsets)[1].get<uint64_t>();
  if (placed.end < placed.begin || placed.end - placed.begin != bytes) {
    return BadEntry(name, absl::StrCat("its shape needs ", bytes, " bytes, data_offsets are ",
                                       placed.begin, " to ", placed.end));
  }
  if (placed.end > content.size) {
    return absl::DataLossError(
        absl::StrCat("truncated: it ends at byte ", content_at + content.size, "; tensor \"", name,
                     "\" reaches ", placed.end - content.size, " bytes beyond"));
  }
  placed.tensor.data = content.data + placed.begin;
  placed.tensor.owner = content.owner;
  return placed;
}

absl::Status CheckCover(const std::vector<Placed>& placed, uint64_t content_bytes,
                        uint64_t content_at) {
  std::vector<const Placed*> sorted;
  for (const Placed& one : placed) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(), [](const Placed* a, const Placed* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t covered = 0;
  const std::string* before = nullptr;
  for (const Placed* one : sorted) {
    if (one->begin < covered) {
      return absl::InvalidArgumentError(absl::StrCat("tensors \"", *before, "\" and \"",
                                                     one->tensor.name, "\" overlap at byte ",
                                                     content_at + one->begin));
    }
    if (one->begin > covered) break;
    covered = one->end;
    before = &one->tensor.name;
  }
  if (covered != content_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes from ", content_at + covered, " on belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::Status TakeMetadata(const Json& json, TensorSet* set) {
  if (!json.is_object()) return absl::InvalidArgumentError("__metadata__ is no JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("__metadata__: \"", key, "\" is no string"));
    }
    set->metadata[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

void RestoreTypes(TensorSet* set) {
  for (Tensor& tensor : set->tensors) {
    const auto said = set->metadata.find(kTypePrefix + tensor.name);
    if (said == set->metadata.end()) continue;
    if (tensor.dtype == DType::kFloat32 && said->second == Name(DType::kTf32)) {
      tensor.dtype = DType::kTf32;
      set->metadata.erase(said);
    }
  }
}

// A file beside the final one until it is whole.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path)
      : final_path_(path), path_(absl::StrCat(path, ".partial-", getpid())) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) Fail("cannot be written");
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(path_.c_str());
  }

  void Write(const void* bytes, uint64_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count != 0 && status_.ok()) {
      const ssize_t written = write(fd_, at, std::min<uint64_t>(count, 1 << 30));
      if (written < 0) {
        if (errno != EINTR) Fail("cannot be written");
        continue;
      }
      at += written;
      count -= static_cast<uint64_t>(written);
    }
  }

  absl::Status Finish() {
    if (!status_.ok()) return status_;
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0 || rename(path_.c_str(), final_path_.c_str()) != 0) {
      Fail("cannot be written");
      unlink(path_.c_str());
    }
    return status_;
  }

 private:
  void Fail(const char* what) {
    status_ = absl::ErrnoToStatus(errno, absl::StrCat("\"", final_path_, "\": ", what));
  }

  std::string final_path_, path_;
  int fd_ = -1;
  absl::Status status_;
};

// The elements of a tensor with strides, row-major.
void WriteStrided(const Tensor& tensor, UnfinishedFile* file) {
  constexpr size_t kBufferBytes = 1 << 20;
  const uint32_t element_bytes = ElementBytes(tensor.dtype);
  const size_t rank = tensor.shape.size();
  std::vector<std::byte> buffer;
  buffer.reserve(kBufferBytes);
  std::array<int64_t, kMostDimensions> index{};
  int64_t at = 0;  // in elements
  for (int64_t left = tensor.ElementCount(); left > 0; --left) {
    const std::byte* element = tensor.data + at * element_bytes;
    buffer.insert(buffer.end(), element, element + element_bytes);
    if (buffer.size() + element_bytes > kBufferBytes || left == 1) {
      file->Write(buffer.data(), buffer.size());
      buffer.clear();
    }
    for (size_t axis = rank; axis-- > 0;) {
      at += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      at -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
}

absl::StatusOr<std::string> HeaderText(const std::vector<Tensor>& tensors,
                                       std::map<std::string, std::string> metadata) {
  std::set<std::string_view> names;
  std::string entries;
  uint64_t begin = 0;
  try {
    for (const Tensor& tensor : tensors) {
      if (tensor.name == kMetadataKey || !names.insert(tensor.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("the name \"", tensor.name, "\" is taken; give each tensor its own"));
      }
      uint64_t bytes = 0;
      if (tensor.shape.size() > kMostDimensions ||
          !DenseBytes(tensor.shape, ElementBytes(tensor.dtype), &bytes)) {
        return BadEntry(tensor.name, "its shape has too many dimensions or elements");
      }
      if (tensor.dtype == DType::kTf32) metadata[kTypePrefix + tensor.name] = Name(tensor.dtype);
      const Json entry = {{"dtype", NameInFile(tensor.dtype)},
                          {"shape", tensor.shape},
                          {"data_offsets", {begin, begin + bytes}}};
      absl::StrAppend(&entries, entries.empty() ? "" : ",", Json(tensor.name).dump(), ":",
                      entry.dump());
      begin += bytes;
    }
    std::string text = "{";
    if (!metadata.empty()) {
      absl::StrAppend(&text, "\"", kMetadataKey, "\":", Json(metadata).dump(),
                      entries.empty() ? "" : ",");
    }
    absl::StrAppend(&text, entries, "}");
    text.resize((text.size() + 7) / 8 * 8, ' ');  // the elements begin aligned
    return text;
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("a tensor's name or the metadata is not UTF-8");
  }
}

}  // namespace

absl::StatusOr<TensorSet> ReadSafetensors(const ByteRange& file) {
  if (!file.Holds(0, kLengthBytes)) {
    return absl::DataLossError(
        absl::StrCat("truncated: it ends at byte ", file.size, ", within the header"));
  }
  const auto length = file.Number<uint64_t>(0);
  if (length > kMostHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", length, " bytes at byte 0; is it a .safetensors file?"));
  }
  if (!file.Holds(kLengthBytes, length)) {
    return absl::DataLossError(absl::StrCat("truncated: it ends at byte ", file.size,
                                            "; the header reaches to ", kLengthBytes + length));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data) + kLengthBytes, length);
  absl::StatusOr<Header> header = ParseHeader(text);
  if (!header.ok()) return header.status();
  const uint64_t content_at = kLengthBytes + length;
  const ByteRange content = file.Part(content_at, file.size - content_at);
  TensorSet set;
  std::vector<Placed> placed;
  for (const std::string& key : header->keys) {
    const Json& value = header->json[key];
    if (key == kMetadataKey) {
      if (absl::Status status = TakeMetadata(value, &set); !status.ok()) return status;
      continue;
    }
    absl::StatusOr<Placed> entry = ReadEntry(key, value, content, content_at);
    if (!entry.ok()) return entry.status();
    placed.push_back(*std::move(entry));
  }
  if (absl::Status status = CheckCover(placed, content.size, content_at); !status.ok()) {
    return status;
  }
  for (Placed& one : placed) set.tensors.push_back(std::move(one.tensor));
  RestoreTypes(&set);
  return set;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<std::string> header = HeaderText(tensors, metadata);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat("\"", path, "\": ", header.status().message()));
  }
  UnfinishedFile file(path);
  const uint64_t length = header->size();
  file.Write(&length, sizeof length);
  file.Write(header->data(), length);
  for (const Tensor& tensor : tensors) {
    if (tensor.IsDense()) {
      const auto count = static_cast<uint64_t>(tensor.ElementCount());
      file.Write(tensor.data, count * ElementBytes(tensor.dtype));
    } else {
      WriteStrided(tensor, &file);
    }
  }
  return file.Finish();
}

}  // namespace ops_debug::proto
