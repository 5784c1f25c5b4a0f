// Names and lines of machine code, from a cubin of nvcc 13.0 (data/README.md shows its source),
// from one that the installed nvcc makes now, and from damaged ones.
#include "ptx/cubin.h"

#include <elf.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

namespace ops_debug::ptx {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string Lines() {
  return ReadFile(std::filesystem::path(OPS_DEBUG_TEST_DATA) / "lines_sm_90.cubin");
}

// "put lines.cu:3 < reads lines.cu:6"
std::string Frames(const CubinCode& code, std::string_view function, uint64_t offset) {
  std::ostringstream text;
  for (const CodeFrame& frame : code.FramesAt(function, offset)) {
    if (text.tellp() > 0) text << " < ";
    text << frame.function << ' ' << frame.file << ':' << frame.line;
  }
  return text.str();
}

TEST_CASE("A cubin names its kernels, and the functions inside them") {
  const auto code = CubinCode::Read(Lines());
  REQUIRE(code);
  REQUIRE(code->functions().size() == 1);
  CHECK(code->functions()[0].name == "_Z5readsPKfPfi");
  CHECK(code->functions()[0].size_bytes == 512);
  CHECK(code->functions()[0].entry);
  CHECK_FALSE(code->InnerAt("_Z5readsPKfPfi", 0xa0));
  const auto inner = code->InnerAt("_Z5readsPKfPfi", 0xb0);
  REQUIRE(inner);
  CHECK(inner->name == "_Z4deepPKfi");
  CHECK(inner->offset == 0xb0);
  CHECK_FALSE(code->InnerAt("_Z5readsPKfPfi", 0x200));
  CHECK_FALSE(code->InnerAt("other", 0xb0));
}

TEST_CASE("An instruction has its line, and the calls it was inlined by") {
  const auto code = CubinCode::Read(Lines());
  REQUIRE(code);
  CHECK(code->has_lines());
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0) == "_Z5readsPKfPfi /src/lines.cu:5");
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0x18) == "_Z5readsPKfPfi /src/lines.cu:6");
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0x70) ==
        "_Z3putPfif /src/lines.cu:3 < _Z5readsPKfPfi /src/lines.cu:6");
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0xa0) == "_Z5readsPKfPfi /src/lines.cu:8");
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0xb0) == "_Z4deepPKfi /src/lines.cu:1");
  CHECK(Frames(*code, "_Z5readsPKfPfi", 0x200) == "");
  CHECK(Frames(*code, "other", 0) == "");
}

TEST_CASE("What is no cubin is none") {
  CHECK_FALSE(CubinCode::Read(""));
  CHECK_FALSE(
      CubinCode::Read("\x7f"
                      "ELF"));
  CHECK_FALSE(CubinCode::Read(std::string(4096, 'x')));
}

// The bytes come from the program: whatever they are, nothing is read outside of them.
TEST_CASE("Damaged cubins are survived") {
  const std::string whole = Lines();
  std::mt19937 random(1);
  const auto use = [](const std::string& bytes) {
    const auto code = CubinCode::Read(bytes);
    if (!code) return;
    for (const CubinCode::Function& function : code->functions()) {
      for (uint64_t offset = 0; offset < 512; offset += 16) {
        code->InnerAt(function.name, offset);
        code->FramesAt(function.name, offset);
      }
    }
  };
  for (size_t bytes = 0; bytes < whole.size(); bytes += 61) use(whole.substr(0, bytes));
  for (int round = 0; round < 400; round++) {
    std::string damaged = whole;
    for (int change = 0; change < 12; change++) {
      // Half of the changes hit the line program and the section table.
      const size_t at = change % 2 == 0 ? random() % damaged.size()
                                        : (round % 2 == 0 ? 0x700 + random() % 0x300
                                                          : damaged.size() - 1 - random() % 0x600);
      damaged[at] = static_cast<char>(random());
    }
    use(damaged);
  }
}

// Where the contents of a section lie in the file; 0: nowhere.
size_t SectionOffset(const std::string& elf, std::string_view name) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  const auto section = [&](size_t index) {
    Elf64_Shdr entry;
    std::memcpy(&entry, elf.data() + header.e_shoff + index * sizeof entry, sizeof entry);
    return entry;
  };
  const size_t names = section(header.e_shstrndx).sh_offset;
  for (size_t i = 0; i < header.e_shnum; i++) {
    if (name == elf.c_str() + names + section(i).sh_name) return section(i).sh_offset;
  }
  return 0;
}

TEST_CASE("Entries of no bytes are not counted out") {
  std::string damaged = Lines();
  const size_t lines = SectionOffset(damaged, ".debug_line");
  REQUIRE(lines != 0);
  // DWARF 5: opcodes end at once; 0 fields describe a folder, of which there are 2^63.
  const std::string program(
      "\x1e\0\0\0\5\0\x8\0\0\0\0\0\1\1\1\0\1\1"
      "\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\1",
      29);
  damaged.replace(lines, program.size(), program);
  const auto code = CubinCode::Read(damaged);
  REQUIRE(code);
  CHECK(code->FramesAt("_Z5readsPKfPfi", 0).empty());
}

// The format belongs to NVIDIA and may change with the compiler: what is installed must be
// readable.
TEST_CASE("A cubin of the installed nvcc has names and lines") {
  const std::filesystem::path nvcc = OPS_DEBUG_NVCC;
  if (nvcc.empty() || !std::filesystem::exists(nvcc)) {
    WARN("no nvcc");
    return;
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("ops_debug_cubin_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "kernel.cu") << "__device__ __forceinline__ void put(int* p) {\n"
                                         "  *p = 1;\n"
                                         "}\n"
                                         "extern \"C\" __global__ void fill(int* p) {\n"
                                         "  put(p + threadIdx.x);\n"
                                         "}\n";
  const std::string command = "cd " + folder.string() + " && " + nvcc.string() +
                              " -arch=sm_90 -lineinfo -cubin -o kernel.cubin kernel.cu";
  REQUIRE(std::system(command.c_str()) == 0);
  const auto code = CubinCode::Read(ReadFile(folder / "kernel.cubin"));
  std::filesystem::remove_all(folder);
  REQUIRE(code);
  bool found = false;
  for (uint64_t offset = 0; offset < code->functions()[0].size_bytes; offset += 16) {
    const auto frames = code->FramesAt("fill", offset);
    found = found || (frames.size() == 2 && frames[0].function == "_Z3putPi" &&
                      frames[0].line == 2 && frames[1].function == "fill" && frames[1].line == 5);
  }
  CHECK(found);
}

}  // namespace
}  // namespace ops_debug::ptx
