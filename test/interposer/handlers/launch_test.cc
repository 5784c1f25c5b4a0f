// Loading, launching and fault reports, with the real rewriting and a fake device.
#include <catch2/catch.hpp>
#include <cstring>

#include "interposer/context_state.h"
#include "shadow/abi/device_abi.h"
#include "shadow/passes/instrument.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"

namespace ops_debug::interposer::handlers_test {
namespace {

using fake::TheDriver;
using shadow::BoundsEntry;

struct Loaded {
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
  Loaded() {
    REQUIRE(cuModuleLoadData(&module, ScaleText()) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  }
  ~Loaded() { cuModuleUnload(module); }
};

CUresult LaunchScale(CUfunction function, CUdeviceptr p, int n, CUstream stream = nullptr) {
  void* parameters[] = {&p, &n};
  return cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
}

// The extra parameter of a twin, as its kernelParams entry.
struct LaunchParameter {
  uint64_t launch_id = 0;
  std::vector<BoundsEntry> entries;
};
LaunchParameter ReadLaunchParameter(const void* at, size_t slots) {
  LaunchParameter out;
  std::memcpy(&out.launch_id, at, sizeof out.launch_id);
  out.entries.resize(slots);
  std::memcpy(out.entries.data(), static_cast<const char*>(at) + 8, slots * sizeof(BoundsEntry));
  return out;
}

// What the rewriting plans for ScaleText.
const shadow::KernelPlan& Plan() {
  static const auto* module = [] {
    auto result = shadow::Instrument(ScaleText(), shadow::Rewrite::kMemoryChecks);
    REQUIRE(result.ok());
    return new shadow::InstrumentedModule(std::move(*result));
  }();
  for (const shadow::KernelPlan& plan : module->kernels) {
    if (plan.name == "scale") return plan;
  }
  FAIL("no plan for scale");
  return module->kernels.front();
}

TEST_CASE("PTX text is loaded rewritten, and the module says what is checked") {
  StartTest();
  Loaded loaded;
  REQUIRE(TheDriver().module_texts.size() == 1);
  CHECK(TheDriver().module_texts[0].find(".entry scale$ops_debug") != std::string::npos);
  CHECK(TheDriver().module_texts[0].find(".entry scale(") != std::string::npos);
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].api() == "cuModuleLoadData");
  CHECK(modules[0].image() == "PTX text");
  CHECK(modules[0].ptx_version() == "8.0");
  CHECK(modules[0].target() == "sm_80");
  CHECK(modules[0].not_checked_reason().empty());
  REQUIRE(modules[0].kernels_size() == 1);
  CHECK(modules[0].kernels(0).name() == "scale");
  CHECK(modules[0].kernels(0).checked());
  CHECK(modules[0].kernels(0).checked_accesses() == 2);
}

TEST_CASE("a launch runs the twin, with the program's parameters and the bounds of its pointers") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  const size_t slots = Plan().slots.size();
  REQUIRE(slots >= 1);
  LaunchParameter extra;
  CUdeviceptr seen_p = 0;
  int seen_n = 0;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    CHECK(launch.kernel == "scale$ops_debug");
    seen_p = *static_cast<CUdeviceptr*>(launch.parameters[0]);
    seen_n = *static_cast<int*>(launch.parameters[1]);
    extra = ReadLaunchParameter(launch.parameters[2], slots);
  };
  REQUIRE(LaunchScale(loaded.scale, p, 7) == CUDA_SUCCESS);
  CHECK(seen_p == p);
  CHECK(seen_n == 7);
  CHECK(extra.launch_id >= 1);
  for (const BoundsEntry& entry : extra.entries) {
    CHECK(entry.base == p);
    CHECK(entry.last == 4000 - 4);
  }
  const uint64_t first_id = extra.launch_id;
  REQUIRE(LaunchScale(loaded.scale, p, 7) == CUDA_SUCCESS);
  CHECK(extra.launch_id == first_id + 1);
  cuMemFree_v2(p);
}

TEST_CASE("packed parameters get the same, behind the program's own") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  struct {
    CUdeviceptr p;
    int n;
  } packed{p, 9};
  size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  bool launched = false;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    launched = true;
    CHECK(launch.kernel == "scale$ops_debug");
    CHECK(launch.parameters == nullptr);
    REQUIRE(launch.extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER);
    const auto* buffer = static_cast<const char*>(launch.extra[1]);
    CHECK(*static_cast<size_t*>(launch.extra[3]) ==
          Plan().launch_parameter_offset + Plan().launch_parameter_bytes);
    CHECK(std::memcmp(buffer, &packed, 12) == 0);
    const auto parameter =
        ReadLaunchParameter(buffer + Plan().launch_parameter_offset, Plan().slots.size());
    CHECK(parameter.entries[0].base == p);
  };
  REQUIRE(cuLaunchKernel(loaded.scale, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra) ==
          CUDA_SUCCESS);
  CHECK(launched);
  cuMemFree_v2(p);
}

TEST_CASE("a freed pointer, and any pointer under capture, is left to shadow memory") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  LaunchParameter extra;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
  };
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  REQUIRE(LaunchScale(loaded.scale, p, 7, stream) == CUDA_SUCCESS);
  cuStreamEndCapture(stream, &graph);
  CHECK(extra.entries[0].base == shadow::kBoundsUseShadow);
  REQUIRE(LaunchScale(loaded.scale, p, 7, stream) == CUDA_SUCCESS);
  CHECK(extra.entries[0].base == p);
  cuMemFree_v2(p);
  REQUIRE(LaunchScale(loaded.scale, p, 7) == CUDA_SUCCESS);
  CHECK(extra.entries[0].base == shadow::kBoundsUseShadow);
}

TEST_CASE("a library's kernel launches its twin, as CUkernel and as CUfunction") {
  StartTest();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cuLibraryLoadData(&library, ScaleText(), nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&kernel, library, "scale") == CUDA_SUCCESS);
  REQUIRE(cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS);
  REQUIRE(LaunchScale(reinterpret_cast<CUfunction>(kernel), 0, 0) == CUDA_SUCCESS);
  REQUIRE(LaunchScale(function, 0, 0) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.size() == 2);
  CHECK(TheDriver().launches[0].kernel == "scale$ops_debug");
  CHECK(TheDriver().launches[1].kernel == "scale$ops_debug");
  cuLibraryUnload(library);
}

TEST_CASE("the module's context names directory, records and published faults") {
  StartTest();
  Loaded loaded;
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  const auto* context =
      reinterpret_cast<const shadow::ModuleContext*>(fake::Variable(shadow::kModuleContextSymbol));
  CHECK(context->abi_version == shadow::kAbiVersion);
  CHECK(context->directory == CurrentContextState()->shadow.directory());
  CHECK(context->records != 0);
  CHECK(context->published != 0);
  CHECK(context->counters != 0);
  CHECK(context->flags == 0);
}

TEST_CASE("module variables are allocations") {
  StartTest();
  Loaded loaded;
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  const auto variable = Book().FindStart(fake::Variable("table"));
  REQUIRE(variable.has_value());
  CHECK(variable->name == "table");
  CHECK(variable->kind == shadow::AllocationKind::kModuleVariable);
}

TEST_CASE("if the twin does not fit, the original runs and the summary says why") {
  StartTest();
  Loaded loaded;
  TheDriver().twin_result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.size() == 1);
  CHECK(TheDriver().launches[0].kernel == "scale");
  cuModuleUnload(loaded.module);
  bool told = false;
  for (const proto::Event& event : TakeEvents()) {
    if (!event.has_launch_summary() || event.launch_summary().checked_launches() != 0) continue;
    told = true;
    CHECK(event.launch_summary().launches() == 1);
    CHECK(event.launch_summary().not_checked_reason().find("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES") !=
          std::string::npos);
  }
  CHECK(told);
}

TEST_CASE(
    "a kernel whose blocks wait for each other runs as it is if its twin would lose residency") {
  StartTest();
  std::string text = ScaleText();
  text.insert(text.find("  ret;"),
              "wait:\n  ld.volatile.global.u32 %r2, [%rd2];\n  .reg .pred %p1;\n"
              "  setp.lt.u32 %p1, %r2, 4;\n  @%p1 bra wait;\n");
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
  REQUIRE(cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  REQUIRE(LaunchScale(scale, 0, 0) == CUDA_SUCCESS);  // 4 blocks, 8 resident either way
  TheDriver().resident_twin_blocks = 3;
  REQUIRE(LaunchScale(scale, 0, 0) == CUDA_SUCCESS);
  TheDriver().resident_blocks = 3;  // not all resident natively: the kernel cannot rely on it
  REQUIRE(LaunchScale(scale, 0, 0) == CUDA_SUCCESS);
  TheDriver().resident_blocks = TheDriver().resident_twin_blocks = 8;
  REQUIRE(TheDriver().launches.size() == 3);
  CHECK(TheDriver().launches[0].kernel == "scale$ops_debug");
  CHECK(TheDriver().launches[1].kernel == "scale");
  CHECK(TheDriver().launches[2].kernel == "scale$ops_debug");
  cuModuleUnload(module);
}

TEST_CASE("a launch that the driver refuses returns its error and is reported") {
  StartTest();
  Loaded loaded;
  TheDriver().twin_result = TheDriver().original_result = CUDA_ERROR_INVALID_VALUE;
  CHECK(LaunchScale(loaded.scale, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  const auto invalid = Pick<proto::InvalidLaunch>(TakeEvents(), &proto::Event::has_invalid_launch,
                                                  &proto::Event::invalid_launch);
  REQUIRE(invalid.size() == 1);
  CHECK(invalid[0].error() == "CUDA_ERROR_INVALID_VALUE");
  CHECK(invalid[0].api() == "cuLaunchKernel");
  CHECK(invalid[0].launch().kernel() == "scale");
  CHECK(invalid[0].launch().block().x() == 256);
}

TEST_CASE("launches are counted, checked ones too") {
  StartTest();
  {
    Loaded loaded;
    for (int i = 0; i < 3; i++) REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  }
  uint64_t launches = 0, checked = 0;
  for (const proto::Event& event : TakeEvents()) {
    launches += event.launch_summary().launches();
    checked += event.launch_summary().checked_launches();
  }
  CHECK(launches == 3);
  CHECK(checked == 3);
}

TEST_CASE("what the program sets on a kernel is set on its twin") {
  StartTest();
  Loaded loaded;
  REQUIRE(cuFuncSetAttribute(loaded.scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             65536) == CUDA_SUCCESS);
  CHECK(TheDriver().attributes ==
        std::vector<std::string>{"scale 8 65536", "scale$ops_debug 8 65536"});
}

TEST_CASE("a program that reads a graph node's parameters sees its own kernel") {
  StartTest();
  Loaded loaded;
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.back().kernel == "scale$ops_debug");
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  REQUIRE(cuGraphKernelNodeGetParams_v2(nullptr, &parameters) == CUDA_SUCCESS);
  CHECK(parameters.func == loaded.scale);
}

TEST_CASE("enumeration does not show twins") {
  StartTest();
  Loaded loaded;
  unsigned count = 0;
  REQUIRE(cuModuleGetFunctionCount(&count, loaded.module) == CUDA_SUCCESS);
  REQUIRE(count == 1);
  CUfunction functions[1] = {};
  REQUIRE(cuModuleEnumerateFunctions(functions, 1, loaded.module) == CUDA_SUCCESS);
  CHECK(functions[0] == loaded.scale);
}

TEST_CASE("PTX that the driver rejects is replaced by the original, with the driver's reason") {
  StartTest();
  TheDriver().rejected = "$ops_debug";
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, ScaleText()) == CUDA_SUCCESS);
  REQUIRE(TheDriver().module_texts.size() == 1);
  CHECK(TheDriver().module_texts[0] == ScaleText());
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].not_checked_reason().find("CUDA_ERROR_INVALID_PTX") != std::string::npos);
  CHECK(modules[0].not_checked_reason().find("line 7: no such thing") != std::string::npos);
  CUfunction scale = nullptr;
  REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  REQUIRE(LaunchScale(scale, 0, 0) == CUDA_SUCCESS);
  CHECK(TheDriver().launches.back().kernel == "scale");
  cuModuleUnload(module);
}

TEST_CASE("PTX with a syntax error is the driver's to judge, and the place is reported") {
  StartTest();
  CUmodule module = nullptr;
  const char* broken = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f( {\n";
  cuModuleLoadData(&module, broken);
  const auto events = TakeEvents();
  const auto modules = Modules(events);
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].not_checked_reason().find("4:") != std::string::npos);
  CHECK(TheDriver().module_texts.back() == broken);
}

TEST_CASE("a cubin is loaded untouched, with advice") {
  StartTest();
  std::vector<char> cubin(128);
  std::memcpy(cubin.data(),
              "\x7f"
              "ELF\x02\x01\x01\x41\x08",
              9);
  cubin[49] = 90;
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, cubin.data()) == CUDA_SUCCESS);
  const auto modules = Modules(TakeEvents());
  REQUIRE(modules.size() == 1);
  CHECK(modules[0].image() == "cubin sm_90");
  CHECK(modules[0].not_checked_reason().find("-gencode arch=compute_90,code=compute_90") !=
        std::string::npos);
}

// What a device would do: count an offence of one class at a site and publish the first offender.
void Offend(uint32_t site, uint32_t fault_class, uint64_t launch_id, uint64_t address,
            BoundsEntry bounds, uint64_t count, uint32_t shadow_value = 0) {
  const auto* context =
      reinterpret_cast<const shadow::ModuleContext*>(fake::Variable(shadow::kModuleContextSymbol));
  const uint32_t entry = site * shadow::kFaultClasses + fault_class;
  auto& record = reinterpret_cast<shadow::FaultRecord*>(context->records)[entry];
  auto& published = reinterpret_cast<shadow::PublishedFault*>(context->published)[entry];
  record.count += count;
  if (record.first_launch != 0) return;
  record.first_launch = launch_id;
  published.launch_id = launch_id;
  published.address = address;
  published.bounds_base = bounds.base;
  published.bounds_last = bounds.last;
  published.block[0] = 3;
  published.thread[0] = 232;
  published.shadow_value = shadow_value;
  published.sequence += 2;
}

TEST_CASE("an access beyond the pointer's allocation: site, launch, offender, allocation") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  uint64_t launch_id = 0;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    const auto extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
    launch_id = extra.launch_id;
    Offend(1, shadow::kFaultOutOfBounds, launch_id, p + 4000, extra.entries[0], 24);
  };
  REQUIRE(LaunchScale(loaded.scale, p, 1000) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  const auto faults = Faults(TakeEvents());
  REQUIRE(faults.size() == 1);
  const proto::Fault& fault = faults[0];
  CHECK(fault.fault_class() == proto::FAULT_CLASS_OUT_OF_BOUNDS);
  CHECK(fault.site().access() == proto::ACCESS_KIND_STORE);
  CHECK(fault.site().access_bytes() == 4);
  CHECK(fault.site().instruction().find("st.global.f32") != std::string::npos);
  CHECK(fault.launch().launch_id() == launch_id);
  CHECK(fault.launch().kernel() == "scale");
  CHECK(fault.launch().grid().x() == 4);
  CHECK(fault.launch().stack().frames_size() > 0);
  CHECK(fault.block().x() == 3);
  CHECK(fault.thread().x() == 232);
  CHECK(fault.address() == p + 4000);
  CHECK(fault.count() == 24);
  CHECK(fault.provenance());
  CHECK(fault.parameter_index() == 0);
  CHECK(fault.allocation().address() == p);
  CHECK(fault.allocation().size_bytes() == 4000);
  CHECK(fault.allocation().api() == "cuMemAlloc");
  CHECK(fault.allocation().allocation_stack().frames_size() > 0);
  CHECK_FALSE(fault.allocation().freed());
  cuMemFree_v2(p);
}

TEST_CASE("a fault is told once, and again when a later launch repeats it") {
  StartTest();
  Loaded loaded;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    const auto extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
    Offend(0, shadow::kFaultMisaligned, extra.launch_id, 0x10001, {shadow::kBoundsUseShadow, 0}, 5);
  };
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  cuCtxSynchronize();
  CHECK(Faults(TakeEvents()).size() == 1);
  cuCtxSynchronize();
  CHECK(Faults(TakeEvents()).empty());
  REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  cuCtxSynchronize();
  const auto again = Faults(TakeEvents());
  REQUIRE(again.size() == 1);
  CHECK(again[0].count() == 5);
}

TEST_CASE("while other streams may run, counts are told as increments") {
  StartTest();
  Loaded loaded;
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    const auto extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
    Offend(0, shadow::kFaultMisaligned, extra.launch_id, 0x10001, {shadow::kBoundsUseShadow, 0}, 5);
  };
  uint64_t total = 0;
  for (int i = 0; i < 3; i++) {
    REQUIRE(LaunchScale(loaded.scale, 0, 0, stream) == CUDA_SUCCESS);
    cuStreamSynchronize(stream);
    for (const auto& fault : Faults(TakeEvents())) total += fault.count();
  }
  CHECK(total == 15);
}

TEST_CASE("use after free names the freed allocation and both stacks") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  REQUIRE(cuMemFree_v2(p) == CUDA_SUCCESS);
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    const auto extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
    Offend(0, shadow::kFaultUseAfterFree, extra.launch_id, p + 16, {shadow::kBoundsUseShadow, 0}, 1,
           shadow::kShadowFreed);
  };
  REQUIRE(LaunchScale(loaded.scale, p, 0) == CUDA_SUCCESS);
  cuStreamSynchronize(nullptr);
  const auto faults = Faults(TakeEvents());
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].fault_class() == proto::FAULT_CLASS_USE_AFTER_FREE);
  CHECK(faults[0].allocation().address() == p);
  CHECK(faults[0].allocation().freed());
  CHECK(faults[0].allocation().free_api() == "cuMemFree");
  CHECK(faults[0].allocation().allocation_stack().frames_size() > 0);
  CHECK(faults[0].allocation().free_stack().frames_size() > 0);
  CHECK(faults[0].shadow_value() == shadow::kShadowFreed);
}

TEST_CASE("unloading a module reports what it still had to say") {
  StartTest();
  {
    Loaded loaded;
    TheDriver().on_launch = [&](const fake::Launch& launch) {
      const auto extra = ReadLaunchParameter(launch.parameters[2], Plan().slots.size());
      Offend(0, shadow::kFaultWildAddress, extra.launch_id, 8, {shadow::kBoundsUseShadow, 0}, 1,
             shadow::kShadowWild);
      const auto* context = reinterpret_cast<const shadow::ModuleContext*>(
          fake::Variable(shadow::kModuleContextSymbol));
      reinterpret_cast<shadow::Counters*>(context->counters)->unknown_accesses = 77;
    };
    REQUIRE(LaunchScale(loaded.scale, 0, 0) == CUDA_SUCCESS);
  }
  const auto events = TakeEvents();
  REQUIRE(Faults(events).size() == 1);
  CHECK(Faults(events)[0].fault_class() == proto::FAULT_CLASS_WILD_ADDRESS);
  const auto unknown = Pick<proto::UnknownAccesses>(events, &proto::Event::has_unknown_accesses,
                                                    &proto::Event::unknown_accesses);
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].count() == 77);
}

}  // namespace
}  // namespace ops_debug::interposer::handlers_test
