// The second engine over a fake driver and a fake Sanitizer API (--engine sass, so that every
// module is its concern).
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "interposer/module_registry.h"
#include "interposer/sass_engine.h"
#include "proto/session.h"
#include "shadow/abi/sass_abi.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"
#include "test/interposer/sass/fake_sanitizer.h"

namespace ops_debug::interposer::handlers_test {
namespace {

using fake::TheDriver;

fake::Sanitizer& TheSanitizer() {
  static auto* sanitizer = [] {
    void* library = dlopen(std::getenv(proto::kEnvSanitizerLibrary), RTLD_NOW);
    REQUIRE(library);
    return reinterpret_cast<fake::FindSanitizer>(dlsym(library, "ops_debug_fake_sanitizer"))();
  }();
  return *sanitizer;
}

// Every launch begins as the API would tell.
void StartSassTest() {
  cuInit(0);
  StartTest();
  REQUIRE(SassEngineObstacle() == "");
  TheSanitizer().user_data.clear();
  TheSanitizer().patch_result = SANITIZER_SUCCESS;
  TheSanitizer().places["scale"] = {0x7f0000001000, 0x200};
  TheDriver().on_launch = [](const fake::Launch& launch) { TheSanitizer().Begin(launch.function); };
}

struct Loaded {
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
  Loaded() {
    REQUIRE(cuModuleLoadData(&module, ScaleText()) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  }
  ~Loaded() {
    TheSanitizer().Unloading(module);
    cuModuleUnload(module);
  }
  void Launch(CUdeviceptr p) {
    int n = 4;
    void* parameters[] = {&p, &n};
    REQUIRE(cuLaunchKernel(scale, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr) ==
            CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  }
};

// The value that was written over the references to a symbol of the patch.
uint64_t BakedAddress(const std::vector<std::byte>& image, const char* symbol) {
  const auto at = [&](uint64_t offset) { return image.data() + offset; };
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(at(0));
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(at(header->e_shoff));
  uint32_t halves[2] = {};
  int found = 0;
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_RELA) continue;
    const Elf64_Shdr& symbols = sections[sections[i].sh_link];
    const char* names = reinterpret_cast<const char*>(at(sections[symbols.sh_link].sh_offset));
    const auto* table = reinterpret_cast<const Elf64_Sym*>(at(symbols.sh_offset));
    const auto* entries = reinterpret_cast<const Elf64_Rela*>(at(sections[i].sh_offset));
    for (uint64_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Rela); k++) {
      if (std::strcmp(names + table[ELF64_R_SYM(entries[k].r_info)].st_name, symbol) != 0) continue;
      CHECK(ELF64_R_TYPE(entries[k].r_info) == 0);  // nothing is left for the driver to do
      uint32_t value = 0;
      std::memcpy(&value, at(sections[sections[i].sh_info].sh_offset + entries[k].r_offset + 4), 4);
      // nvcc's order within a pair is not fixed: the upper half of an address is the small number.
      halves[value < 0x10000 ? 1 : 0] = value;
      found++;
    }
  }
  CHECK(found > 0);
  return uint64_t{halves[1]} << 32 | halves[0];
}

// What the patch does when threads store 4 bytes at `address` by the instruction at `pc`.
void WriteFault(uint64_t pc, CUdeviceptr address, uint64_t threads, uint64_t launch_id) {
  auto* channel = reinterpret_cast<shadow::SassChannel*>(
      BakedAddress(TheSanitizer().patch_images.back(), shadow::kSassChannelSymbol));
  const uint64_t key = shadow::SassFaultKey(pc, shadow::kFaultOutOfBounds);
  const uint32_t slot = shadow::SassFirstSlot(key);
  auto* record = reinterpret_cast<shadow::SassFaultRecord*>(channel->records) + slot;
  record->key = key;
  record->count += threads;
  auto* published = reinterpret_cast<shadow::SassPublishedFault*>(channel->published) + slot;
  published->key = key;
  published->launch_id = launch_id;
  published->address = address;
  published->access_bytes = 4;
  published->flags = shadow::kSassWrite;
  published->shadow_value = shadow::kShadowRedZone;
  published->block[0] = 2;
  published->thread[0] = 9;
  published->sequence += 2;
  reinterpret_cast<shadow::SassCounters*>(channel->counters)->publications++;
}
uint64_t LastLaunchId() {
  return TheSanitizer().user_data.back().second & shadow::kSassLaunchIdMask;
}

// First in this file: the module is loaded before the engine has anything in the context.
TEST_CASE("A fault has the lines of a module that was loaded before the first launch") {
  StartSassTest();
  const std::string name = "_Z5readsPKfPfi";
  std::string text = ScaleText();
  for (size_t at = text.find("scale"); at != std::string::npos;
       at = text.find("scale", at + name.size()))
    text.replace(at, 5, name);
  CUmodule module = nullptr;
  CUfunction reads = nullptr;
  REQUIRE(cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  std::ifstream file(OPS_DEBUG_TEST_DATA "/lines_sm_90.cubin", std::ios::binary);
  const std::string cubin((std::istreambuf_iterator<char>(file)), {});
  // Libraries: the API's handle of a module need not be the driver's.
  TheSanitizer().Loaded(context, reinterpret_cast<CUmodule>(16), cubin);
  TheSanitizer().places[name] = {0x7f0000100000, 512};
  REQUIRE(cuModuleGetFunction(&reads, module, name.c_str()) == CUDA_SUCCESS);
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 100) == CUDA_SUCCESS);
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    TheSanitizer().Begin(launch.function);
    WriteFault(0x7f0000100070, p + 100, 1, LastLaunchId());
  };
  int n = 4;
  void* parameters[] = {&p, &n};
  REQUIRE(cuLaunchKernel(reads, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  const std::vector<proto::Fault> faults = Faults(TakeEvents());
  REQUIRE(faults.size() == 1);
  REQUIRE(faults[0].site().frames_size() == 2);
  CHECK(faults[0].site().frames(0).function() == "_Z3putPfif");
  CHECK(faults[0].site().frames(0).file() == "/src/lines.cu");
  CHECK(faults[0].site().frames(0).line() == 3);
  CHECK(faults[0].site().frames(1).line() == 6);
  cuMemFree_v2(p);
}

proto::LaunchSummary LastSummary() {
  proto::LaunchSummary last;
  for (const proto::Event& event : TakeEvents()) {
    if (event.has_launch_summary()) last = event.launch_summary();
  }
  return last;
}

TEST_CASE("A module is patched when a kernel of it runs first, and once") {
  StartSassTest();
  Loaded loaded;
  CHECK(std::count(TheSanitizer().patched.begin(), TheSanitizer().patched.end(), loaded.module) ==
        0);
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS);
  for (int i = 0; i < 3; i++) loaded.Launch(p);
  CHECK(std::count(TheSanitizer().patched.begin(), TheSanitizer().patched.end(), loaded.module) ==
        1);
  const auto& functions = TheSanitizer().instructions[loaded.module];
  CHECK(functions.at(SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS) == shadow::kSassGlobalAccess);
  CHECK(functions.at(SANITIZER_INSTRUCTION_MEMCPY_ASYNC) == shadow::kSassAsyncCopy);
  CHECK(functions.at(SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED) == shadow::kSassBulkRead);
  cuMemFree_v2(p);
}

TEST_CASE("The patch gets each launch's number") {
  StartSassTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS);
  loaded.Launch(p);
  loaded.Launch(p);
  REQUIRE(TheSanitizer().user_data.size() == 2);
  for (const auto& [function, value] : TheSanitizer().user_data) {
    CHECK(function == loaded.scale);
    CHECK(value >> shadow::kSassLaunchTagShift == shadow::kSassLaunchTag);
  }
  CHECK(TheSanitizer().user_data[1].second > TheSanitizer().user_data[0].second);
  // A launch that nobody announced has no number to give.
  TheSanitizer().Begin(loaded.scale);
  CHECK(TheSanitizer().user_data.size() == 2);
  cuMemFree_v2(p);
}

TEST_CASE("A handle that stands for another module's code is patched again") {
  StartSassTest();
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS);
  const size_t before = TheSanitizer().patched.size();
  for (int i = 0; i < 3; i++) {
    Loaded loaded;
    loaded.Launch(p);
  }
  CHECK(TheSanitizer().patched.size() == before + 3);
  cuMemFree_v2(p);
}

TEST_CASE("A module that the API cannot patch is named, with the reason") {
  StartSassTest();
  Loaded loaded;
  TheSanitizer().patch_result = SANITIZER_ERROR_UNKNOWN;
  std::string reason;
  CHECK_FALSE(SassEngineCovers(loaded.scale, CurrentContextState(), CU_STREAM_LEGACY, 1, &reason));
  CHECK(reason == "NVIDIA's Sanitizer API cannot patch its module (words of the fake)");
}

TEST_CASE("A fault on the device becomes an event with its function, launch and allocation") {
  StartSassTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 100) == CUDA_SUCCESS);
  const CUdeviceptr address = p + 100;
  uint64_t launch_id = 0;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    TheSanitizer().Begin(launch.function);
    launch_id = LastLaunchId();
    WriteFault(0x7f0000001040, address, 7, launch_id);
  };
  TakeEvents();
  loaded.Launch(p);
  const std::vector<proto::Fault> faults = Faults(TakeEvents());
  REQUIRE(faults.size() == 1);
  const proto::Fault& fault = faults.front();
  CHECK(fault.engine() == "sass");
  CHECK(fault.fault_class() == proto::FAULT_CLASS_OUT_OF_BOUNDS);
  CHECK(fault.site().function() == "scale");
  CHECK(fault.site().sass_offset() == 0x40);
  CHECK(fault.site().access() == proto::ACCESS_KIND_STORE);
  CHECK(fault.site().access_bytes() == 4);
  CHECK(fault.count() == 7);
  CHECK(fault.launch().launch_id() == launch_id);
  CHECK(fault.block().x() == 2);
  CHECK(fault.thread().x() == 9);
  CHECK(fault.address() == address);
  REQUIRE(fault.has_allocation());
  CHECK(fault.allocation().address() == p);
  // The same fault again: only its count is new.
  loaded.Launch(p);
  const std::vector<proto::Fault> again = Faults(TakeEvents());
  REQUIRE(again.size() == 1);
  CHECK(again.front().count() == 7);
  cuMemFree_v2(p);
}

TEST_CASE("Launches of patched kernels count as checked by this engine") {
  StartSassTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS);
  loaded.Launch(p);
  DrainFaults(DrainDepth::kFinal);
  const proto::LaunchSummary summary = LastSummary();
  CHECK(summary.engine() == "sass");
  CHECK(summary.checked_launches() == summary.launches());
  CHECK(summary.launches() > 0);
  cuMemFree_v2(p);
}

}  // namespace
}  // namespace ops_debug::interposer::handlers_test
