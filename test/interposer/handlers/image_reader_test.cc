#include "interposer/image_reader.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

namespace ops_debug::interposer {
namespace {

std::string Data(const char* name) {
  std::ifstream file(std::string(OPS_DEBUG_TEST_DATA) + "/" + name, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a fat binary gives the newest PTX that the device can take") {
  const std::string bytes = Data("scale_zstd.fatbin");  // PTX compute_80, ELF sm_90
  const Image image = ReadImage(bytes.data(), {90});
  CHECK(image.description == "fatbin: PTX compute_80 (zstd)");
  REQUIRE(image.ptx.has_value());
  CHECK(image.ptx->find(".entry scale(") != std::string::npos);
  CHECK(FindDirective(*image.ptx, ".target") == "sm_80");
}

TEST_CASE("PTX older than the machine code beside it is noted") {
  const std::string bytes = Data("scale_plain.fatbin");
  CHECK(ReadImage(bytes.data(), {90}).note.find("compute_80") != std::string::npos);
  CHECK(ReadImage(bytes.data(), {80}).note.empty());   // no machine code for sm_80 in it
  CHECK(ReadImage(bytes.data(), {100}).note.empty());  // nor for sm_100
}

TEST_CASE("PTX only for newer devices is not for this one, and the advice says what to compile") {
  const std::string bytes = Data("scale_plain.fatbin");
  const Image image = ReadImage(bytes.data(), {75});
  CHECK_FALSE(image.ptx.has_value());
  CHECK(image.not_checked_reason.find("-gencode arch=compute_75,code=compute_75") !=
        std::string::npos);
}

TEST_CASE("text is PTX if its first directive is .version, whatever comments come before") {
  CHECK(ReadImage("\n// hello\n/* there */ .version 8.0\n.target sm_80\n", {90}).ptx.has_value());
  for (const char* text : {"", "hello", "// only a comment", "/* unfinished"}) {
    CAPTURE(text);
    const Image image = ReadImage(text, {90});
    CHECK_FALSE(image.ptx.has_value());
    CHECK_FALSE(image.not_checked_reason.empty());
  }
}

TEST_CASE("garbage and bad pointers are described, not followed") {
  CHECK_FALSE(ReadImage(nullptr, {90}).not_checked_reason.empty());
  CHECK_FALSE(ReadImage(reinterpret_cast<const void*>(8), {90}).not_checked_reason.empty());
  std::string damaged = Data("scale_plain.fatbin");
  for (size_t i = 8; i < 64; i++) damaged[i] = '\xee';
  const Image image = ReadImage(damaged.data(), {90});
  CHECK_FALSE(image.ptx.has_value());
  CHECK(image.not_checked_reason.find("fat binary") != std::string::npos);
}

TEST_CASE("files are read like memory") {
  CHECK(ReadImageFile(Data("scale_lz4.fatbin"), {90}).description ==
        "fatbin: PTX compute_80 (LZ4)");
  CHECK(ReadImageFile(".version 8.0\n", {90}).description == "PTX text");
  CHECK_FALSE(ReadImageFile("", {90}).ptx.has_value());
}

}  // namespace
}  // namespace ops_debug::interposer
