// Machine code whose PTX is in the store is loaded as that PTX, under the options of its assembler.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "interposer/cubin_identity.h"
#include "interposer/image_reader.h"
#include "interposer/local_assembler.h"
#include "interposer/ptx_store.h"
#include "ptx/fatbin.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"
#include "test/interposer/ptx_store_fixture.h"

namespace ops_debug::interposer {
namespace {

using fake::TheDriver;
using handlers_test::Modules;
using handlers_test::ScaleText;
using handlers_test::StartTest;
using handlers_test::TakeEvents;

using Options = std::vector<std::pair<CUjit_option, void*>>;
// Rewritten text is compiled on all processors.
const Options::value_type kInParallel{CU_JIT_SPLIT_COMPILE, nullptr};

void* Value(uintptr_t value) { return reinterpret_cast<void*>(value); }

// A cubin that no other test knows, and its PTX.
std::string KnownCubin(const std::string& code, AssemblerOptions options = {},
                       const std::string& text = ScaleText()) {
  std::string cubin = MakeCubin(code);
  RememberPtx(Bytes(cubin), {.text = text, .options = options, .origin = "NVRTC"});
  return cubin;
}

proto::ModuleLoaded Loaded(const std::string& cubin) {
  StartTest();
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, cubin.data()) == CUDA_SUCCESS);
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  return modules[0];
}

}  // namespace

TEST_CASE("a cubin whose PTX is known is loaded as instrumented text") {
  const proto::ModuleLoaded module = Loaded(KnownCubin("known"));
  CHECK(module.note() == "PTX from NVRTC");
  CHECK(module.image().find("cubin") == 0);
  REQUIRE(module.kernels_size() == 1);
  CHECK(module.kernels(0).checked());
  CHECK(module.kernels(0).engine() == "ptx");
  CHECK(TheDriver().module_texts.back().find("scale$ops_debug") != std::string::npos);
  CHECK(TheDriver().module_options.back() == Options{kInParallel});
}

TEST_CASE("a cubin whose PTX is not known is loaded as it is") {
  const proto::ModuleLoaded module = Loaded(MakeCubin("unknown"));
  CHECK(module.not_checked_reason().find("no PTX") == 0);
  CHECK(TheDriver().module_texts.back().empty());
}

TEST_CASE("the assembler's options become the driver's") {
  Loaded(KnownCubin("limited", {.max_registers = 40, .optimization = 1}));
  CHECK(TheDriver().module_options.back() == Options{{CU_JIT_MAX_REGISTERS, Value(40)},
                                                     {CU_JIT_OPTIMIZATION_LEVEL, Value(1)},
                                                     kInParallel});
}

TEST_CASE("without fused multiply-add the text says so in each operation") {
  Loaded(KnownCubin("unfused", {.fuse_multiply_add = false}));
  CHECK(TheDriver().module_texts.back().find("add.rn.f32") != std::string::npos);
  Loaded(KnownCubin("fused"));
  CHECK(TheDriver().module_texts.back().find("add.rn.f32") == std::string::npos);
}

TEST_CASE("the program's compile options mean nothing for a cubin and do not reach its PTX") {
  StartTest();
  const std::string cubin = KnownCubin("optioned");
  char log[64] = "";
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_INFO_LOG_BUFFER,
                            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_TARGET};
  void* values[] = {Value(16), log, Value(sizeof log), Value(80)};
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadDataEx(&module, cubin.data(), 4, options, values) == CUDA_SUCCESS);
  CHECK(TheDriver().module_options.back() ==
        Options{{CU_JIT_INFO_LOG_BUFFER, log},
                {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, Value(sizeof log)},
                kInParallel});
  // For PTX of its own they do.
  REQUIRE(cuModuleLoadDataEx(&module, ScaleText(), 4, options, values) == CUDA_SUCCESS);
  CHECK(TheDriver().module_options.back().size() == 5);
}

TEST_CASE("if the driver rejects the PTX the cubin itself is loaded") {
  StartTest();
  const std::string cubin = KnownCubin("rejected");
  TheDriver().rejected = "$ops_debug";
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, cubin.data()) == CUDA_SUCCESS);
  CHECK(TheDriver().module_texts.back().empty());
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].not_checked_reason().find("the driver rejects the rewritten PTX") == 0);
  CHECK(modules[0].not_checked_reason().find("line 7: no such thing") != std::string::npos);
}

TEST_CASE("PTX that is newer than the driver goes through a local ptxas") {
  setenv("PATH", OPS_DEBUG_TEST_TOOLKIT "/bin:/usr/bin:/bin", 1);
  if (LocalAssemblers().empty()) return;
  StartTest();
  const std::string cubin = KnownCubin("new");
  TheDriver().rejected = "$ops_debug";
  TheDriver().rejected_with = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, cubin.data()) == CUDA_SUCCESS);
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].note() ==
        "PTX from NVRTC; PTX newer than the driver: compiled by a local ptxas");
  REQUIRE(modules[0].kernels_size() == 1);
  CHECK(modules[0].kernels(0).checked());
}

TEST_CASE("a local ptxas gets the options, and its complaint is passed on") {
  setenv("PATH", OPS_DEBUG_TEST_TOOLKIT "/bin:/usr/bin:/bin", 1);
  if (LocalAssemblers().empty()) return;
  std::string why;
  const std::string cubin =
      AssembleLocally(ScaleText(), 90, {.max_registers = 32, .optimization = 0}, &why);
  CHECK(ElfBytes(Bytes(cubin)) == cubin.size());
  CHECK(cubin != AssembleLocally(ScaleText(), 90, {}, &why));
  CHECK(AssembleLocally(".version 8.0\n.target sm_80\nnonsense\n", 90, {}, &why).empty());
  CHECK(why.find("ptxas rejects it") == 0);
}

TEST_CASE("machine code in a fat binary whose PTX is known is better than older PTX beside it") {
  std::ifstream file(std::string(OPS_DEBUG_TEST_DATA) + "/scale_zstd.fatbin", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  auto fatbin = ptx::OpenFatbin(bytes.data());
  REQUIRE(fatbin.ok());
  CHECK(ReadImage(bytes.data(), {90}).description == "fatbin: PTX compute_80 (zstd)");
  for (const ptx::FatbinEntry& entry : fatbin->entries) {
    if (entry.kind != ptx::FatbinEntry::Kind::kElf) continue;
    auto cubin = ReadPayload(entry);
    REQUIRE(cubin.ok());
    RememberPtx(Bytes(*cubin), {.text = ".version 9.0\n// exact", .origin = "ptxas"});
  }
  const Image image = ReadImage(bytes.data(), {90});
  CHECK(image.description.find("ELF sm_90") != std::string::npos);
  CHECK(image.ptx->find("// exact") != std::string::npos);
  CHECK(image.note == "PTX from ptxas");
  CHECK(image.assembled);
  // Another device runs other code.
  CHECK(ReadImage(bytes.data(), {80}).ptx->find("// exact") == std::string::npos);
}

TEST_CASE("what the driver links of PTX alone is checked as that PTX") {
  StartTest();
  TheDriver().linked_cubin = MakeCubin("linked of PTX");
  CUlinkState state = nullptr;
  CUjit_option option = CU_JIT_MAX_REGISTERS;
  void* value = Value(48);
  REQUIRE(cuLinkCreate_v2(1, &option, &value, &state) == CUDA_SUCCESS);
  std::string first = ScaleText();
  std::string second =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .b32 other[4];\n";
  for (std::string* text : {&first, &second})
    cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text->data(), text->size() + 1, "a", 0, nullptr,
                     nullptr);
  void* cubin = nullptr;
  REQUIRE(cuLinkComplete(state, &cubin, nullptr) == CUDA_SUCCESS);
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, cubin) == CUDA_SUCCESS);
  cuLinkDestroy(state);
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].note() == "PTX from cuLinkComplete");
  CHECK(TheDriver().module_texts.back().find("other") != std::string::npos);
  CHECK(TheDriver().module_options.back() == Options{{CU_JIT_MAX_REGISTERS, value}, kInParallel});
}

TEST_CASE("what the driver links with machine code has no PTX, and that is said once") {
  StartTest();
  TheDriver().linked_cubin = MakeCubin("linked of both");
  CUlinkState state = nullptr;
  REQUIRE(cuLinkCreate_v2(0, nullptr, nullptr, &state) == CUDA_SUCCESS);
  std::string text = ScaleText(), code = MakeCubin("code");
  cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "a", 0, nullptr, nullptr);
  cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, code.data(), code.size(), "b", 0, nullptr, nullptr);
  void* cubin = nullptr;
  REQUIRE(cuLinkComplete(state, &cubin, nullptr) == CUDA_SUCCESS);
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, cubin) == CUDA_SUCCESS);
  cuLinkDestroy(state);
  const auto events = TakeEvents();
  CHECK(Modules(events).at(0).not_checked_reason().find("no PTX") == 0);
  CHECK(std::ranges::count_if(events, [](const proto::Event& event) {
          return event.diagnostic().text().find("links machine code") != std::string::npos;
        }) == 1);
}

TEST_CASE("a cubin for another device is not made to load") {
  const std::string cubin = [] {
    std::string made = MakeCubin("sm_90");
    const uint32_t flags = 90;
    std::memcpy(made.data() + 48, &flags, sizeof flags);
    RememberPtx(Bytes(made), {.text = ScaleText(), .origin = "NVRTC"});
    return made;
  }();
  CHECK(ReadImage(cubin.data(), {90}).ptx);
  CHECK_FALSE(ReadImage(cubin.data(), {80}).ptx);
  CHECK_FALSE(ReadImage(cubin.data(), {100}).ptx);
}

}  // namespace ops_debug::interposer
