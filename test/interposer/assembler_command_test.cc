// Command lines of ptxas as nvcc, Triton and XLA write them.
#include "interposer/assembler_command.h"

#include <catch2/catch.hpp>

#include "ptx_store_fixture.h"

namespace ops_debug::interposer {
namespace {
using List = std::vector<std::string>;
}

TEST_CASE("nvcc's command line") {
  const AssemblerCommand command = ParseAssemblerCommand(
      {"-arch=sm_90", "-m64", "--generate-line-info", "a.ptx", "-o", "a.cubin"});
  CHECK(command.inputs == List{"a.ptx"});
  CHECK(command.output == "a.cubin");
  CHECK(command.options.fuse_multiply_add);
  CHECK(command.options.max_registers == 0);
  CHECK(command.options.optimization == -1);
}

TEST_CASE("Triton's command line") {
  const AssemblerCommand command =
      ParseAssemblerCommand({"-lineinfo", "-v", "--fmad=false", "--gpu-name=sm_90a", "/t/tmpx.ptx",
                             "-o", "/t/tmpx.ptx.o"});
  CHECK(command.inputs == List{"/t/tmpx.ptx"});
  CHECK(command.output == "/t/tmpx.ptx.o");
  CHECK_FALSE(command.options.fuse_multiply_add);
}

TEST_CASE("values may stand in words of their own") {
  const AssemblerCommand command =
      ParseAssemblerCommand({"--fmad", "false", "-arch", "sm_90", "--maxrregcount", "40", "-O", "1",
                             "--output-file", "b", "a"});
  CHECK(command.inputs == List{"a"});
  CHECK(command.output == "b");
  CHECK_FALSE(command.options.fuse_multiply_add);
  CHECK(command.options.max_registers == 40);
  CHECK(command.options.optimization == 1);
}

TEST_CASE("optimisation levels are written in four ways") {
  CHECK(ParseAssemblerCommand({"-O0"}).options.optimization == 0);
  CHECK(ParseAssemblerCommand({"-O=2"}).options.optimization == 2);
  CHECK(ParseAssemblerCommand({"--opt-level=3"}).options.optimization == 3);
  CHECK(ParseAssemblerCommand({"--device-debug"}).options.optimization == 0);
  CHECK(ParseAssemblerCommand({"-Ofast-compile=max"}).options.optimization == -1);
}

TEST_CASE("options come from files, which may name others") {
  TemporaryFolder folder;
  WriteFile(folder / "inner", "-maxrregcount=32\n");
  WriteFile(folder / "outer", "--fmad=false \"a b.ptx\"\n-optf " + (folder / "inner").string());
  for (const List& arguments : {List{"@" + (folder / "outer").string()},
                                List{"--options-file", (folder / "outer").string()},
                                List{"-optf=" + (folder / "outer").string()}}) {
    const AssemblerCommand command = ParseAssemblerCommand(arguments);
    CHECK(command.inputs == List{"a b.ptx"});
    CHECK_FALSE(command.options.fuse_multiply_add);
    CHECK(command.options.max_registers == 32);
  }
}

TEST_CASE("an options file that names itself ends") {
  TemporaryFolder folder;
  const std::string path = (folder / "self").string();
  WriteFile(path, "-O2 @" + path);
  CHECK(ParseAssemblerCommand({"@" + path}).options.optimization == 2);
}

TEST_CASE("without -o the output is ptxas's default") {
  CHECK(ParseAssemblerCommand({"a.ptx"}).output == "elf.o");
}

}  // namespace ops_debug::interposer
