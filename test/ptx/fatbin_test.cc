// Reads fat binaries that a real nvcc made: small ones checked in (data/README.md says how), fresh
// ones where nvcc is installed, and thousands of damaged ones.
#include "ptx/fatbin.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace ops_debug::ptx {
namespace {

using Kind = FatbinEntry::Kind;
using Compression = FatbinEntry::Compression;

std::vector<std::byte> ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

std::vector<std::byte> Data(const char* name) {
  return ReadBytes(std::filesystem::path(OPS_DEBUG_TEST_DATA) / name);
}

const FatbinEntry* Find(const Fatbin& fatbin, Kind kind, uint32_t arch) {
  for (const FatbinEntry& entry : fatbin.entries) {
    if (entry.kind == kind && entry.arch == arch) return &entry;
  }
  return nullptr;
}

TEST_CASE("plain, LZ4 and zstd fat binaries hold the same PTX") {
  const struct {
    const char* file;
    Compression compression;
    const char* description;
  } cases[] = {{"scale_plain.fatbin", Compression::kNone, "PTX compute_80"},
               {"scale_lz4.fatbin", Compression::kLz4, "PTX compute_80 (LZ4)"},
               {"scale_zstd.fatbin", Compression::kZstd, "PTX compute_80 (zstd)"}};
  for (const auto& c : cases) {
    CAPTURE(c.file);
    const auto bytes = Data(c.file);
    Result<Fatbin> fatbin = ReadFatbinFile(bytes);
    REQUIRE(fatbin.ok());
    CHECK(fatbin->bytes == bytes.size());
    REQUIRE(fatbin->entries.size() == 2);
    const FatbinEntry* ptx = Find(*fatbin, Kind::kPtx, 80);
    REQUIRE(ptx);
    CHECK(ptx->compression == c.compression);
    CHECK(Describe(*ptx) == c.description);
    Result<std::string> text = ReadPayload(*ptx);
    REQUIRE(text.ok());
    CHECK(text->find(".target sm_80") != std::string::npos);
    CHECK(text->find(".entry scale(") != std::string::npos);
    CHECK(text->back() == '\n');
  }
}

TEST_CASE("the cubin of an entry starts with the ELF magic and names its architecture") {
  const auto bytes = Data("scale_zstd.fatbin");
  Result<Fatbin> fatbin = ReadFatbinFile(bytes);
  REQUIRE(fatbin.ok());
  const FatbinEntry* elf = Find(*fatbin, Kind::kElf, 90);
  REQUIRE(elf);
  Result<std::string> image = ReadPayload(*elf);
  REQUIRE(image.ok());
  CHECK(image->substr(0, 4) ==
        "\x7f"
        "ELF");
}

TEST_CASE("a wrapper in memory leads to its container and to nothing behind it") {
  auto bytes = Data("scale_plain.fatbin");
  const size_t one = bytes.size();
  bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(one));
  const struct {
    uint32_t magic, version;
    const void* container;
    const void* relocatable;
  } wrapper{kFatbinWrapperMagic, 1, bytes.data(), nullptr};
  CHECK(LooksLikeFatbin(&wrapper));
  Result<Fatbin> from_wrapper = OpenFatbin(&wrapper);
  REQUIRE(from_wrapper.ok());
  CHECK(from_wrapper->entries.size() == 2);
  CHECK(from_wrapper->bytes == one);
  CHECK_FALSE(from_wrapper->relocatable);
  Result<Fatbin> from_container = OpenFatbin(bytes.data());
  REQUIRE(from_container.ok());
  CHECK(from_container->entries.size() == 2);
  Result<Fatbin> from_file = ReadFatbinFile(bytes);  // a file may hold several
  REQUIRE(from_file.ok());
  CHECK(from_file->entries.size() == 4);
}

TEST_CASE("pointers that lead nowhere are an error with a hint") {
  CHECK_FALSE(LooksLikeFatbin(nullptr));
  CHECK_FALSE(OpenFatbin(nullptr).ok());
  CHECK_FALSE(OpenFatbin(reinterpret_cast<const void*>(16)).ok());
  const struct {
    uint32_t magic, version;
    const void* container;
    const void* relocatable;
  } wrapper{kFatbinWrapperMagic, 1, reinterpret_cast<const void*>(4096), nullptr};
  Result<Fatbin> fatbin = OpenFatbin(&wrapper);
  REQUIRE_FALSE(fatbin.ok());
  CHECK(fatbin.error().message.find("no readable memory") != std::string::npos);
  CHECK_FALSE(fatbin.error().hint.empty());
}

TEST_CASE("readable bytes end where the mapping ends") {
  const auto local = std::make_unique<char[]>(64);
  CHECK(ReadableBytes(local.get()) >= 64);
  CHECK(ReadableBytes(nullptr) == 0);
}

TEST_CASE("every truncation is an error or a shorter list, never a crash") {
  for (const char* file : {"scale_plain.fatbin", "scale_lz4.fatbin", "scale_zstd.fatbin"}) {
    const auto whole = Data(file);
    for (size_t size = 0; size < whole.size(); size++) {
      // An exact copy on the heap, so that a sanitizer build sees each byte read too many.
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
      CHECK_FALSE(ReadFatbinFile(cut).ok());
    }
  }
}

TEST_CASE("damaged bytes never crash the reader") {
  std::mt19937 random(7);
  int still_listed = 0, rejected = 0;
  for (const char* file : {"scale_plain.fatbin", "scale_lz4.fatbin", "scale_zstd.fatbin"}) {
    const auto whole = Data(file);
    for (int round = 0; round < 3000; round++) {
      auto damaged = whole;
      const int flips = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < flips; i++) {
        // Two thirds of the damage goes into the headers.
        const size_t limit = random() % 3 == 0 ? damaged.size() : 160;
        damaged[random() % limit] = static_cast<std::byte>(random());
      }
      Result<Fatbin> fatbin = ReadFatbinFile(damaged);
      if (!fatbin.ok()) {
        rejected++;
        CHECK_FALSE(fatbin.error().message.empty());
        continue;
      }
      still_listed++;
      for (const FatbinEntry& entry : fatbin->entries) {
        Describe(entry);
        Result<std::string> payload = ReadPayload(entry);
        if (!payload.ok()) CHECK_FALSE(payload.error().message.empty());
      }
    }
  }
  CHECK(rejected > 100);
  CHECK(still_listed > 100);
}

TEST_CASE("a damaged compressed payload is reported as damaged") {
  for (const char* file : {"scale_lz4.fatbin", "scale_zstd.fatbin"}) {
    CAPTURE(file);
    const auto bytes = Data(file);
    Result<Fatbin> fatbin = ReadFatbinFile(bytes);
    REQUIRE(fatbin.ok());
    FatbinEntry entry = *Find(*fatbin, Kind::kPtx, 80);
    std::vector<std::byte> payload(entry.payload.size(), std::byte{0xff});
    entry.payload = payload;
    Result<std::string> text = ReadPayload(entry);
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().message.find("damaged") != std::string::npos);
  }
}

TEST_CASE("a header that claims absurd sizes does not make us allocate") {
  const auto bytes = Data("scale_zstd.fatbin");
  Result<Fatbin> fatbin = ReadFatbinFile(bytes);
  REQUIRE(fatbin.ok());
  FatbinEntry entry = *Find(*fatbin, Kind::kPtx, 80);
  for (const uint64_t claimed : {uint64_t{1} << 30, uint64_t{1} << 40, ~uint64_t{0}}) {
    entry.uncompressed_bytes = claimed;
    CHECK_FALSE(ReadPayload(entry).ok());
  }
}

TEST_CASE("what the installed nvcc writes is read back, in every compression mode") {
  if (std::strlen(OPS_DEBUG_NVCC) == 0) {
    WARN("no nvcc at configure time: fresh fat binaries not tested");
    return;
  }
  const auto directory =
      std::filesystem::temp_directory_path() / ("fatbin_test." + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  const auto source = directory / "k.cu";
  std::ofstream(source)
      << "extern \"C\" __global__ void scale(float* p) { p[threadIdx.x] *= 2; }\n";
  const auto build = [&](const std::string& options) {
    const auto out = directory / "k.fatbin";
    const std::string command = std::string(OPS_DEBUG_NVCC) + " -fatbin -o " + out.string() + " " +
                                options + " " + source.string() + " 2>/dev/null";
    return std::system(command.c_str()) == 0 ? ReadBytes(out) : std::vector<std::byte>{};
  };
  for (const char* options :
       {"-gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=[sm_90,compute_90]",
        "-Xfatbin -compress-all -gencode arch=compute_80,code=compute_80 -gencode "
        "arch=compute_90,code=compute_90",
        "-Xfatbin -compress=false -gencode arch=compute_80,code=compute_80 -gencode "
        "arch=compute_90,code=compute_90",
        "--compress-mode=none -gencode arch=compute_80,code=compute_80 -gencode "
        "arch=compute_90,code=compute_90",
        "--compress-mode=speed -gencode arch=compute_80,code=compute_80 -gencode "
        "arch=compute_90,code=compute_90",
        "--compress-mode=size -G -gencode arch=compute_80,code=compute_80 -gencode "
        "arch=compute_90,code=compute_90"}) {
    CAPTURE(options);
    const auto bytes = build(options);
    if (bytes.empty()) {
      WARN("this nvcc does not take: " << options);
      continue;
    }
    Result<Fatbin> fatbin = ReadFatbinFile(bytes);
    REQUIRE(fatbin.ok());
    for (const uint32_t arch : {80u, 90u}) {
      const FatbinEntry* entry = Find(*fatbin, Kind::kPtx, arch);
      REQUIRE(entry);
      CHECK(entry->debug == (std::string(options).find("-G") != std::string::npos));
      Result<std::string> text = ReadPayload(*entry);
      REQUIRE(text.ok());
      CHECK(text->find(".target sm_" + std::to_string(arch)) != std::string::npos);
      CHECK(text->find(".entry scale(") != std::string::npos);
      CHECK(entry->major_version >= 8);
    }
  }
  const auto specific = build("-gencode arch=compute_90a,code=compute_90a");
  if (!specific.empty()) {
    Result<Fatbin> fatbin = ReadFatbinFile(specific);
    REQUIRE(fatbin.ok());
    REQUIRE(Find(*fatbin, Kind::kPtx, 90));
    CHECK(Find(*fatbin, Kind::kPtx, 90)->arch_specific);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace ops_debug::ptx
