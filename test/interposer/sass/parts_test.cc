// Parts of the second engine that need no driver: where the API's library is looked for, the
// patch's addresses, which function and line a program counter belongs to.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "interposer/sass_code.h"
#include "interposer/sass_library.h"
#include "interposer/sass_patch_image.h"
#include "shadow/abi/sass_abi.h"

namespace ops_debug::interposer {
namespace {

TEST_CASE("The API's library is looked for in the toolkit, then among Python's packages") {
  SanitizerSurroundings around;
  around.cuda_homes = {"/opt/cuda", "", "/opt/cuda"};
  around.system_homes = {"/usr/local/cuda"};
  around.python_folders = {"/venv/lib/python3.12/site-packages"};
  around.own_library = "/tool/lib/libops_debug_interposer.so";
  CHECK(SanitizerLibraryCandidates(around) ==
        std::vector<std::string>{
            "/opt/cuda/compute-sanitizer/libsanitizer-public.so",
            "/usr/local/cuda/compute-sanitizer/libsanitizer-public.so",
            "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libsanitizer-public.so",
            "/venv/lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer/"
            "libsanitizer-public.so",
            "/tool/toolkit/lib/libsanitizer-public.so",
            "/tool/toolkit/compute-sanitizer/libsanitizer-public.so",
            "/tool/sanitizer/lib/libsanitizer-public.so",
        });
}

TEST_CASE("A library that the user names is the only one") {
  SanitizerSurroundings around;
  around.named = "/my/libsanitizer-public.so";
  around.cuda_homes = {"/opt/cuda"};
  CHECK(SanitizerLibraryCandidates(around) ==
        std::vector<std::string>{"/my/libsanitizer-public.so"});
}

std::string Obstacle(const std::string& environment) {
  const std::string command = environment + " " + OPS_DEBUG_OBSTACLE_PROGRAM;
  std::FILE* output = popen(command.c_str(), "r");
  REQUIRE(output);
  std::string text;
  std::array<char, 1024> piece;
  while (std::fgets(piece.data(), piece.size(), output)) text += piece.data();
  REQUIRE(pclose(output) == 0);
  return text;
}

TEST_CASE("The engine says why it is off") {
  const std::string session = "OPS_DEBUG_RING=/ops_debug_no_such_ring OPS_DEBUG_CHECKS=memory ";
  const std::string fake = std::string("OPS_DEBUG_SANITIZER_LIBRARY=") + OPS_DEBUG_FAKE_SANITIZER;
  CHECK(Obstacle(session + fake) == "");
  CHECK(Obstacle(session + "OPS_DEBUG_SANITIZER_LIBRARY=/nowhere/libsanitizer-public.so") ==
        "NVIDIA's Sanitizer API cannot be used: /nowhere/libsanitizer-public.so: cannot open "
        "shared object file: No such file or directory");
  CHECK(Obstacle(session + "OPS_DEBUG_SANITIZER_LIBRARY=libm.so.6") ==
        "NVIDIA's Sanitizer API cannot be used: libm.so.6 is of an older CUDA (it lacks "
        "sanitizerSetDeviceGraphData)");
  CHECK(Obstacle(session + fake + " OPS_DEBUG_TEST_SUBSCRIBE_RESULT=10") ==
        "another tool in the process (compute-sanitizer, a profiler or a debugger) holds NVIDIA's "
        "Sanitizer API, which serves one at a time");
  CHECK(Obstacle(session + fake + " OPS_DEBUG_TEST_SUBSCRIBE_RESULT=3") ==
        std::string("NVIDIA's Sanitizer API cannot be used: ") + OPS_DEBUG_FAKE_SANITIZER +
            " refuses: words of the fake");
  CHECK(Obstacle(session + fake + " OPS_DEBUG_ENGINE=ptx") ==
        "the engine for machine code is switched off (--engine)");
  CHECK(Obstacle(session + fake + " OPS_DEBUG_EMULATOR=1") == "the emulator runs PTX only");
  CHECK(Obstacle("OPS_DEBUG_RING=/none OPS_DEBUG_CHECKS=none " + fake) == "memory is not checked");
}

TEST_CASE(
    "Every architecture since Turing has a patch, and later ones of the same family share it") {
  for (const uint32_t arch : {75u, 80u, 86u, 87u, 89u, 90u, 100u, 103u, 110u, 120u, 121u}) {
    CAPTURE(arch);
    std::string failure;
    CHECK_FALSE(MakeSassPatch(arch, {0x7f1234567000, 0x7f89abcde000}, &failure).empty());
    CHECK(failure == "");
  }
  std::string failure;
  CHECK(MakeSassPatch(70, {}, &failure).empty());
  CHECK(failure == "ops-debug has no machine code for a device of compute capability 7.0");
}

TEST_CASE("Addresses are written over every reference to a variable of the patch") {
  std::string failure;
  std::vector<uint64_t> cubin = SassPatchCubin(90);
  const auto occurrences = [&](uint32_t word) {
    std::vector<uint32_t> words(cubin.size() * 2);
    std::memcpy(words.data(), cubin.data(), cubin.size() * 8);
    return std::count(words.begin(), words.end(), word);
  };
  REQUIRE(occurrences(0x5a5a1111) + occurrences(0x5a5a2222) + occurrences(0x5a5a3333) == 0);
  REQUIRE(BakeAddresses(&cubin,
                        {{shadow::kSassDirectorySymbol, 0x5a5a11115a5a2222},
                         {shadow::kSassChannelSymbol, 0x5a5a33335a5a3333}},
                        &failure));
  // The fast paths of two callbacks: global accesses and asynchronous copies.
  CHECK(occurrences(0x5a5a1111) == 2);
  CHECK(occurrences(0x5a5a2222) == 2);
  CHECK(occurrences(0x5a5a3333) % 2 == 0);
  // Baked once, nothing is left to bake.
  CHECK_FALSE(BakeAddresses(&cubin, {{shadow::kSassDirectorySymbol, 1}}, &failure));
  CHECK(failure ==
        "the engine's device code refers to ops_debug_sass_directory by a relocation of type 0");
}

TEST_CASE("A damaged patch is refused, not read beyond its end") {
  const std::vector<uint64_t> whole = SassPatchCubin(90);
  for (size_t words = 0; words < whole.size(); words += 97) {
    std::vector<uint64_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(words));
    std::string failure;
    // What is cut off may be of no importance: then it succeeds.
    if (!BakeAddresses(&cut, {{shadow::kSassDirectorySymbol, 1}}, &failure)) CHECK(failure != "");
  }
}

std::string LinesCubin() {
  std::ifstream file(OPS_DEBUG_TEST_DATA "/lines_sm_90.cubin", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  bytes.reserve(bytes.size() + 16);
  return bytes;
}

SassFunction Reads(CUmodule module, uint64_t pc) {
  SassFunction function;
  function.module = module;
  function.name = "_Z5readsPKfPfi";
  function.pc = pc;
  function.size_bytes = 512;
  function.module_id = 5;
  return function;
}
const CUmodule kModule = reinterpret_cast<CUmodule>(16);
const CUmodule kOther = reinterpret_cast<CUmodule>(32);

TEST_CASE("A program counter leads to function, offset and lines") {
  SassCodeBook code;
  code.ModuleLoaded(nullptr, kModule, LinesCubin());
  code.Add(Reads(kModule, 0x10000));
  const auto inlined = code.Find(nullptr, 0x10070);
  REQUIRE(inlined);
  CHECK(inlined->kernel == "_Z5readsPKfPfi");
  CHECK(inlined->function == "_Z5readsPKfPfi");
  CHECK(inlined->offset == 0x70);
  CHECK(inlined->module_id == 5);
  REQUIRE(inlined->frames.size() == 2);
  CHECK(inlined->frames[0].function == "_Z3putPfif");
  CHECK(inlined->frames[0].line == 3);
  CHECK(inlined->frames[1].line == 6);
  const auto inner = code.Find(nullptr, 0x100c0);
  REQUIRE(inner);
  CHECK(inner->kernel == "_Z5readsPKfPfi");
  CHECK(inner->function == "_Z4deepPKfi");
  CHECK(inner->offset == 0x10);
  CHECK_FALSE(code.Find(nullptr, 0x10200));
  CHECK_FALSE(code.Find(reinterpret_cast<CUcontext>(64), 0x10000));
}

TEST_CASE("A library's module may have another handle: the function's name and size decide") {
  SassCodeBook code;
  code.ModuleLoaded(nullptr, kModule, LinesCubin());
  code.Add(Reads(kOther, 0x10000));
  CHECK(code.Find(nullptr, 0x10070)->frames.size() == 2);
  code.ModuleLoaded(nullptr, reinterpret_cast<CUmodule>(48), LinesCubin());
  SassFunction ambiguous = Reads(reinterpret_cast<CUmodule>(64), 0x20000);
  code.Add(ambiguous);
  CHECK(code.Find(nullptr, 0x20070)->frames.empty());
}

TEST_CASE("Code of an unloaded module is known until other code lies there") {
  SassCodeBook code;
  code.ModuleLoaded(nullptr, kModule, LinesCubin());
  code.Add(Reads(kModule, 0x10000));
  code.ModuleUnloading(kModule);
  REQUIRE(code.Find(nullptr, 0x10000));
  CHECK(code.Find(nullptr, 0x10000)->unloaded);
  SassFunction later = Reads(kOther, 0x10000);
  later.name = "later";
  code.Add(later);
  CHECK(code.Find(nullptr, 0x10000)->kernel == "later");
  CHECK_FALSE(code.Find(nullptr, 0x10000)->unloaded);
}

}  // namespace
}  // namespace ops_debug::interposer
