// Reading and writing .npy, .npz, .safetensors and folders of them.
#include "proto/tensor_file.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "test/proto/tensor_file_fixture.h"

namespace ops_debug::proto {
namespace {

using Catch::Matchers::Contains;

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

template <typename T>
T At(const Tensor& tensor, const std::vector<int64_t>& index) {
  int64_t offset = 0, dense = 1;
  for (size_t axis = index.size(); axis-- > 0;) {
    offset += index[axis] * (tensor.strides.empty() ? dense : tensor.strides[axis]);
    dense *= tensor.shape[axis];
  }
  T value;
  std::memcpy(&value, tensor.data + offset * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

Tensor Dense(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values) {
  return {.name = name,
          .dtype = DType::kFloat32,
          .shape = shape,
          .data = reinterpret_cast<const std::byte*>(values.data())};
}

std::string ErrorOf(const std::string& path) {
  const auto set = ReadTensors(path);
  REQUIRE_FALSE(set.ok());
  CHECK_THAT(std::string(set.status().message()), Contains(path));
  return std::string(set.status().message());
}

TEST_CASE("an .npy is one tensor with the file's name") {
  const TemporaryFolder folder;
  const auto set = ReadTensors(folder.Write("weights.npy", Npy("<f4", "2, 3", BytesOf(kSix))));
  REQUIRE(set.ok());
  REQUIRE(set->tensors.size() == 1);
  const Tensor& tensor = set->tensors[0];
  CHECK(tensor.name == "weights");
  CHECK(tensor.dtype == DType::kFloat32);
  CHECK(tensor.shape == std::vector<int64_t>{2, 3});
  CHECK(tensor.IsDense());
  CHECK(At<float>(tensor, {1, 0}) == 4);
}

TEST_CASE("Fortran order becomes strides") {
  const TemporaryFolder folder;
  const auto set = ReadTensors(folder.Write("f.npy", Npy("<f4", "2, 3", BytesOf(kSix), true)));
  REQUIRE(set.ok());
  CHECK(set->tensors[0].strides == std::vector<int64_t>{1, 2});
  CHECK(At<float>(set->tensors[0], {0, 1}) == 3);
}

TEST_CASE("versions 2 and 3 of .npy, and Python 2's long integers, are read") {
  const TemporaryFolder folder;
  const int version = GENERATE(2, 3);
  const std::string header = R"({"shape": (6L,), "descr": "<f4", "fortran_order": False})";
  const auto set =
      ReadTensors(folder.Write("a.npy", NpyWithHeader(header, BytesOf(kSix), version)));
  REQUIRE(set.ok());
  CHECK(set->tensors[0].shape == std::vector<int64_t>{6});
}

TEST_CASE("big-endian arrays are swapped, complex numbers part by part") {
  const TemporaryFolder folder;
  const std::string one = {'\x3f', '\x80', '\0', '\0'}, two = {'\x40', '\0', '\0', '\0'};
  const auto real = ReadTensors(folder.Write("a.npy", Npy(">f4", "2,", one + two)));
  const auto complex = ReadTensors(folder.Write("c.npy", Npy(">c8", "1,", one + two)));
  REQUIRE(real.ok());
  REQUIRE(complex.ok());
  CHECK(At<float>(real->tensors[0], {1}) == 2);
  CHECK(complex->tensors[0].dtype == DType::kComplex64);
  CHECK(std::memcmp(complex->tensors[0].data, BytesOf<float>({1, 2}).data(), 8) == 0);
}

TEST_CASE("arrays without dimensions, without elements and with eight dimensions are read") {
  const TemporaryFolder folder;
  const auto scalar = ReadTensors(folder.Write("s.npy", Npy("<f4", "", BytesOf<float>({7}))));
  const auto empty = ReadTensors(folder.Write("e.npy", Npy("<f4", "3, 0", "")));
  const auto deep =
      ReadTensors(folder.Write("d.npy", Npy("<f4", "1, 1, 2, 1, 1, 3, 1, 1", BytesOf(kSix))));
  REQUIRE(scalar.ok());
  REQUIRE(empty.ok());
  REQUIRE(deep.ok());
  CHECK(scalar->tensors[0].shape.empty());
  CHECK(scalar->tensors[0].ElementCount() == 1);
  CHECK(empty->tensors[0].ElementCount() == 0);
  CHECK(deep->tensors[0].shape.size() == 8);
}

TEST_CASE("types that cannot be compared are refused with advice") {
  const TemporaryFolder folder;
  const auto [descr, advice] = GENERATE(table<const char*, const char*>({{"|V2", "bfloat16"},
                                                                         {"|O", "astype"},
                                                                         {"<U8", "astype"},
                                                                         {"<f16", "astype"},
                                                                         {"<M8[ns]", "astype"}}));
  const std::string path = folder.Write("a.npy", Npy(descr, "1,", std::string(64, '\0')));
  CHECK_THAT(ErrorOf(path), Contains(descr) || Contains("Python objects"));
  CHECK_THAT(ErrorOf(path), Contains(advice));
}

TEST_CASE("structured arrays are refused with advice") {
  const TemporaryFolder folder;
  const std::string header =
      "{'descr': [('x', '<f4'), ('y', '<i4')], 'fortran_order': False, 'shape': (1,)}";
  CHECK_THAT(ErrorOf(folder.Write("a.npy", NpyWithHeader(header, std::string(8, '\0')))),
             Contains("numpy.savez"));
}

TEST_CASE("headers that NumPy would not write are refused") {
  const TemporaryFolder folder;
  const auto header = GENERATE(
      "", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}");
  INFO(header);
  ErrorOf(folder.Write("a.npy", NpyWithHeader(header, std::string(4, '\0'))));
}

TEST_CASE("sizes whose product overflows are no reason to believe them") {
  const TemporaryFolder folder;
  const auto shape = GENERATE("4611686018427387904, 4", "9223372036854775807, 9223372036854775807",
                              "4611686018427387904, 4, 0");
  CHECK_THAT(ErrorOf(folder.Write("a.npy", Npy("<f4", shape, ""))), Contains("truncated"));
}

TEST_CASE("bytes behind an array are said, not ignored") {
  const TemporaryFolder folder;
  CHECK_THAT(ErrorOf(folder.Write("a.npy", Npy("<f4", "1,", std::string(7, '\0')))),
             Contains("3 bytes follow"));
}

TEST_CASE("an .npz holds its members in order, stored, deflated and in ZIP64") {
  const TemporaryFolder folder;
  const bool deflated = GENERATE(false, true), zip64 = GENERATE(false, true);
  const std::string zip = Zip({{"w.npy", Npy("<f4", "2, 3", BytesOf(kSix))},
                               {"a/b.npy", Npy("<i8", "", BytesOf<int64_t>({-5}))}},
                              deflated, zip64);
  const auto set = ReadTensors(folder.Write("set.npz", zip));
  INFO(set.status().message());
  REQUIRE(set.ok());
  REQUIRE(set->tensors.size() == 2);
  CHECK(set->tensors[0].name == "w");
  CHECK(At<float>(set->tensors[0], {1, 2}) == 6);
  CHECK(set->tensors[1].name == "a/b");
  CHECK(At<int64_t>(set->tensors[1], {}) == -5);
}

TEST_CASE("a deflated member whose bytes are damaged is refused") {
  const TemporaryFolder folder;
  std::string zip = Zip({{"w.npy", Npy("<f4", "2, 3", BytesOf(kSix))}}, true);
  zip[14] ^= 1;                           // the local header's checksum does not count
  zip[zip.find("PK\x01\x02") + 16] ^= 1;  // the directory's does
  CHECK_THAT(ErrorOf(folder.Write("set.npz", zip)), Contains("w.npy") && Contains("damaged"));
}

TEST_CASE("a member that promises more than deflate can give is refused") {
  const TemporaryFolder folder;
  std::string zip = Zip({{"w.npy", Npy("<f4", "2, 3", BytesOf(kSix))}}, true);
  zip.replace(zip.find("PK\x01\x02") + 24, 4, Little(0x7fffffff, 4));
  CHECK_THAT(ErrorOf(folder.Write("set.npz", zip)), Contains("impossible size"));
}

TEST_CASE("members that share bytes are refused") {
  const TemporaryFolder folder;
  const std::string npy = Npy("<f4", "2, 3", BytesOf(kSix));
  std::string zip = Zip({{"a.npy", npy}, {"b.npy", npy}}, false);
  const size_t second = zip.rfind("PK\x01\x02");
  zip.replace(second + 42, 4, Little(0, 4));
  CHECK_THAT(ErrorOf(folder.Write("set.npz", zip)), Contains("share bytes"));
}

TEST_CASE("a zip archive of other things is no .npz") {
  const TemporaryFolder folder;
  CHECK_THAT(ErrorOf(folder.Write("model.pt", Zip({{"archive/data.pkl", "x"}}, false))),
             Contains("safetensors.torch.save_file"));
}

TEST_CASE("what is written as .safetensors comes back: order, types, metadata") {
  const TemporaryFolder folder;
  std::vector<std::byte> bytes(16, std::byte{0x3c});
  std::vector<Tensor> tensors;
  for (int i = static_cast<int>(DType::kComplex128); i >= 0; --i) {
    const auto dtype = static_cast<DType>(i);
    tensors.push_back({.name = std::string("of ") + Name(dtype),
                       .dtype = dtype,
                       .shape = {1, 16 / ElementBytes(dtype)},
                       .data = bytes.data()});
  }
  const std::string path = folder.path() + "/all.safetensors";
  REQUIRE(WriteSafetensors(path, tensors, {{"seed", "7"}}).ok());
  const auto set = ReadTensors(path);
  INFO(set.status().message());
  REQUIRE(set.ok());
  CHECK(set->metadata == std::map<std::string, std::string>{{"seed", "7"}});
  REQUIRE(set->tensors.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHECK(set->tensors[i].name == tensors[i].name);
    CHECK(set->tensors[i].dtype == tensors[i].dtype);
    CHECK(set->tensors[i].shape == tensors[i].shape);
    CHECK(std::memcmp(set->tensors[i].data, bytes.data(), 16) == 0);
  }
}

TEST_CASE("tensors with strides are written dense") {
  const TemporaryFolder folder;
  Tensor transposed = Dense("t", {3, 2}, kSix);
  transposed.strides = {1, 3};
  Tensor reversed = Dense("r", {6}, kSix);
  reversed.strides = {-1};
  reversed.data += 5 * sizeof(float);
  Tensor repeated = Dense("broadcast", {4}, kSix);
  repeated.strides = {0};
  const std::string path = folder.path() + "/t.safetensors";
  REQUIRE(WriteSafetensors(path, {transposed, reversed, repeated}).ok());
  const auto set = ReadTensors(path);
  REQUIRE(set.ok());
  const auto written = [&](size_t i) {
    return std::string(reinterpret_cast<const char*>(set->tensors[i].data),
                       static_cast<size_t>(set->tensors[i].ElementCount()) * sizeof(float));
  };
  CHECK(written(0) == BytesOf<float>({1, 4, 2, 5, 3, 6}));
  CHECK(written(1) == BytesOf<float>({6, 5, 4, 3, 2, 1}));
  CHECK(written(2) == BytesOf<float>({1, 1, 1, 1}));
}

TEST_CASE("writing replaces a file whole and leaves nothing else behind") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("t.safetensors", "old");
  REQUIRE(WriteSafetensors(path, {Dense("new", {6}, kSix)}).ok());
  CHECK(ReadTensors(path)->tensors[0].name == "new");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()),
                      std::filesystem::directory_iterator()) == 1);
}

TEST_CASE("what cannot be written is said") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/t.safetensors";
  CHECK_FALSE(WriteSafetensors(folder.path() + "/no/such.safetensors", {}).ok());
  const Tensor twice = Dense("twice", {6}, kSix);
  CHECK_THAT(std::string(WriteSafetensors(path, {twice, twice}).message()), Contains("twice"));
  CHECK_FALSE(WriteSafetensors(path, {Dense("\xff", {6}, kSix)}).ok());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a .safetensors header that lies is refused") {
  const TemporaryFolder folder;
  const auto [header, words] = GENERATE(table<const char*, const char*>({
      {R"([])", "no JSON object"},
      {R"({"a":1})", "no JSON object"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "lacks"},
      {R"({"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", "F4"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "no count"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "no count"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})",
       "more elements"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "needs 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "needs 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "truncated"},
      {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
       "overlap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
           "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "\"a\""},
      {R"({"__metadata__":{"x":1},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "no string"},
  }));
  INFO(header);
  CHECK_THAT(ErrorOf(folder.Write("a.safetensors", Safetensors(header, "abcd"))), Contains(words));
}

TEST_CASE("a folder holds its files' tensors, in the order in which people count") {
  const TemporaryFolder folder;
  folder.Write("layer10.npy", Npy("<f4", "", BytesOf<float>({10})));
  folder.Write("layer2.npy", Npy("<f4", "", BytesOf<float>({2})));
  folder.Write("layer3.npz", Zip({{"w.npy", Npy("<f4", "", BytesOf<float>({3}))}}, false));
  folder.Write("notes.txt", "not a tensor");
  const auto set = ReadTensors(folder.path());
  REQUIRE(set.ok());
  REQUIRE(set->tensors.size() == 3);
  CHECK(set->tensors[0].name == "layer2");
  CHECK(set->tensors[1].name == "layer3/w");
  CHECK(set->tensors[2].name == "layer10");
}

TEST_CASE("a folder of captured launches is in the order of launches, its processes counted") {
  const TemporaryFolder folder;
  const auto launch = [](int sequence) {
    return Safetensors(R"({"__metadata__":{"sequence":")" + std::to_string(sequence) +
                           R"("},"arg0":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                       "x");
  };
  const auto names = [&] {
    std::string text;
    const auto set = ReadTensors(folder.path());
    for (const Tensor& tensor : set->tensors) text += tensor.name + " ";
    return text;
  };
  std::filesystem::create_directory(folder.path() + "/process-10");
  folder.Write("process-10/add#0.safetensors", launch(1));
  folder.Write("process-10/mul#0.safetensors", launch(0));
  folder.Write("process-10/.mul#1.safetensors.unfinished", "x");
  folder.Write("process-10/.hidden.safetensors", "x");
  CHECK(names() == "mul#0/arg0 add#0/arg0 ");
  std::filesystem::create_directory(folder.path() + "/process-9");
  folder.Write("process-9/neg#0.safetensors", launch(0));
  CHECK(names() == "process0/neg#0/arg0 process1/mul#0/arg0 process1/add#0/arg0 ");
}

TEST_CASE("files that are not there, empty, or of another kind are named with what is wrong") {
  const TemporaryFolder folder;
  CHECK_THAT(ErrorOf(folder.path() + "/none.npy"), Contains("No such file"));
  CHECK_THAT(ErrorOf(folder.path()), Contains("holds no .npy"));
  CHECK_THAT(ErrorOf(folder.Write("empty.npz", "")), Contains("is empty"));
  CHECK_THAT(ErrorOf(folder.Write("notes.txt", "hello, this is text")), Contains("known format"));
  CHECK_THAT(ErrorOf(folder.Write("text.npy", "hello, this is text")), Contains("is no .npy"));
  CHECK_THAT(ErrorOf("/dev/zero"), Contains("not a regular file"));
}

TEST_CASE("two tensors of one name are refused") {
  const TemporaryFolder folder;
  const std::string npy = Npy("<f4", "", BytesOf<float>({1}));
  CHECK_THAT(ErrorOf(folder.Write("t.npz", Zip({{"a.npy", npy}, {"a.npy", npy}}, false))),
             Contains("\"a\""));
}

}  // namespace
}  // namespace ops_debug::proto
