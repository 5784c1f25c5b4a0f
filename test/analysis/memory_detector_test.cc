// Which faults are one finding, who speaks for it, and where an access lies.
#include "analysis/memory_detector.h"

#include "analysis/memory_words.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

constexpr char kFault[] = R"(
  fault_class: FAULT_CLASS_OUT_OF_BOUNDS
  site {
    function: "_Z1kPf" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_GLOBAL access_bytes: 4
    ptx_line: 10 instruction: "st.global.f32 [%rd1], %f1;"
    frames { file: "k.cu" line: 5 column: 3 }
  }
  launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 32 y: 1 z: 1 } }
  block { x: 1 } thread { x: 7 } address: 4000 count: 3
  parameter_index: -1
)";

proto::Fault Fault(const std::string& change = "") {
  auto fault = Parse<proto::Fault>(kFault);
  fault.MergeFrom(Parse<proto::Fault>(change));
  return fault;
}

struct Detection {
  void Add(const proto::Fault& fault, uint32_t process = 1) { detector.Add(process, fault); }
  HostSymbolizer symbolizer;
  MemoryDetector detector{symbolizer};
};

TEST_CASE("reports of one site add up") {
  Detection detection;
  detection.Add(Fault());
  detection.Add(Fault("launch { launch_id: 9 } count: 5"));
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].count == 8);
  REQUIRE_FALSE(findings[0].count_is_lower_bound);
  REQUIRE(findings[0].launch->number == 2);
}

TEST_CASE("the earliest launch speaks, then the lowest block, then the lowest thread") {
  Detection detection;
  const std::string order = GENERATE("012", "120", "201", "210");
  const std::string changes[] = {"launch { launch_id: 1 } block { x: 3 }",
                                 "block { x: 0 } thread { x: 9 }",
                                 "block { x: 1 } thread { x: 0 }"};
  for (const char i : order) detection.Add(Fault(changes[i - '0']));
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].launch->number == 1);
  REQUIRE(findings[0].block->x == 3);
}

TEST_CASE("a fault inside a toolkit header is shown at the line that called it") {
  Detection detection;
  auto fault = Fault();
  fault.mutable_site()->clear_frames();
  fault.MergeFrom(Parse<proto::Fault>(R"(site {
    frames { function: "_Z9atomicAddPff" file: "/x/toolkit/bin/../include/a.hpp" line: 84 }
    frames { file: "/src/include/k.cu" line: 5 }
    frames { file: "/src/k.cu" line: 9 }
  })"));
  detection.Add(fault);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].frames.size() == 2);
  REQUIRE(findings[0].frames[0].file == "/src/include/k.cu");
  REQUIRE(findings[0].toolkit_frames.size() == 1);
  REQUIRE(findings[0].toolkit_frames[0].function == "atomicAdd(float*, float)");
}

TEST_CASE("a fault whose places are all in toolkit headers keeps them") {
  Detection detection;
  auto fault = Fault();
  fault.mutable_site()->mutable_frames(0)->set_file("/usr/local/cuda-13.0/include/cub/cub.cuh");
  detection.Add(fault);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].frames.size() == 1);
  REQUIRE(findings[0].toolkit_frames.empty());
}

TEST_CASE("a count of zero means at least one") {
  Detection detection;
  auto fault = Fault();
  fault.set_count(0);
  detection.Add(fault);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].count == 1);
  REQUIRE(findings[0].count_is_lower_bound);
}

TEST_CASE("unrolled copies of a source place are one finding with several instructions") {
  Detection detection;
  detection.Add(Fault());
  auto copy = Fault();
  copy.mutable_site()->set_ptx_line(12);
  copy.mutable_site()->set_instruction("st.global.f32 [%rd1+4], %f2;");
  detection.Add(copy);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].instructions == 2);
}

TEST_CASE("without line info each instruction is a place of its own") {
  Detection detection;
  auto fault = Fault();
  fault.mutable_site()->clear_frames();
  detection.Add(fault);
  fault.mutable_site()->set_ptx_line(12);
  detection.Add(fault);
  REQUIRE(detection.detector.Finish().size() == 2);
}

TEST_CASE("process, kernel, function, class, direction and column keep findings apart") {
  Detection detection;
  detection.Add(Fault());
  detection.Add(Fault(), 2);
  auto fault = Fault();
  fault.mutable_launch()->set_kernel("_Z1mPf");
  detection.Add(fault);
  fault = Fault();
  fault.mutable_site()->set_function("_Z1dPf");
  detection.Add(fault);
  detection.Add(Fault("fault_class: FAULT_CLASS_MISALIGNED"));
  detection.Add(Fault("site { access: ACCESS_KIND_LOAD }"));
  fault = Fault();
  fault.mutable_site()->mutable_frames(0)->set_column(9);
  detection.Add(fault);
  REQUIRE(detection.detector.Finish().size() == 7);
}

TEST_CASE("findings come in the order in which they were first reported") {
  Detection detection;
  for (const uint32_t line : {9, 3, 7}) {
    auto fault = Fault();
    fault.mutable_site()->mutable_frames(0)->set_line(line);
    detection.Add(fault);
  }
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].frames[0].line == 9);
  REQUIRE(findings[1].frames[0].line == 3);
  REQUIRE(findings[2].frames[0].line == 7);
}

TEST_CASE("the class and the address space give the kind") {
  const auto [change, kind] = GENERATE(table<std::string, std::string>({
      {"", "oob-global"},
      {"site { space: ADDRESS_SPACE_GENERIC }", "oob-global"},
      {"site { space: ADDRESS_SPACE_SHARED }", "oob-shared"},
      {"site { space: ADDRESS_SPACE_LOCAL }", "oob-local"},
      {"fault_class: FAULT_CLASS_USE_AFTER_FREE", "use-after-free"},
      {"fault_class: FAULT_CLASS_MISALIGNED", "misaligned"},
      {"fault_class: FAULT_CLASS_MISALIGNED site { space: ADDRESS_SPACE_SHARED }", "misaligned"},
      {"fault_class: FAULT_CLASS_WILD_ADDRESS", "oob-global"},
  }));
  Detection detection;
  detection.Add(Fault(change));
  REQUIRE(detection.detector.Finish()[0].kind == kind);
}

TEST_CASE("refused launches are merged by kernel and error") {
  Detection detection;
  const auto invalid = Parse<proto::InvalidLaunch>(
      R"(launch { launch_id: 1 kernel: "_Z1kPf" } error: "CUDA_ERROR_INVALID_VALUE" api: "cuLaunchKernel")");
  detection.detector.Add(1, invalid);
  detection.detector.Add(1, invalid);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].kind == "invalid-launch");
  REQUIRE(findings[0].kernel == "k(float*)");
  REQUIRE(findings[0].count == 2);
}

TEST_CASE("the parameter's type comes from the signature") {
  Detection detection;
  auto fault = Fault();
  fault.set_parameter_index(0);
  detection.Add(fault);
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].parameter.has_value());
  REQUIRE(findings[0].parameter->type == "float*");
}

TEST_CASE("a parameter index beyond the signature has no type") {
  Detection detection;
  detection.Add(Fault("parameter_index: 5"));
  const auto findings = detection.detector.Finish();
  REQUIRE(findings[0].parameter->index == 5);
  REQUIRE(findings[0].parameter->type == "");
}

TEST_CASE("an access is placed relative to a block of 100 bytes at 1000") {
  const auto [address, bytes, placement, distance] =
      GENERATE(table<uint64_t, uint64_t, Placement, uint64_t>({
          {1000, 4, Placement::kInside, 0},
          {1096, 4, Placement::kInside, 0},
          {1098, 4, Placement::kAcrossEnd, 0},
          {1100, 4, Placement::kBehind, 0},
          {1104, 4, Placement::kBehind, 4},
          {996, 4, Placement::kBefore, 0},
          {998, 4, Placement::kBefore, 0},
          {900, 4, Placement::kBefore, 96},
      }));
  INFO(address);
  const Place place = PlaceOf(address, bytes, 1000, 100);
  REQUIRE(place.placement == placement);
  REQUIRE(place.distance_bytes == distance);
}

TEST_CASE("the distance is part of the sentence") {
  AllocationInfo allocation{.id = 1, .size_bytes = 4000, .placement = Placement::kBehind};
  REQUIRE(DescribePlacement(allocation) == "just past the end of a 4000-byte allocation");
  allocation.distance_bytes = 4;
  REQUIRE(DescribePlacement(allocation) == "4 bytes past the end of a 4000-byte allocation");
  allocation.placement = Placement::kBefore;
  allocation.distance_bytes = 1;
  REQUIRE(DescribePlacement(allocation) == "1 byte before the start of a 4000-byte allocation");
  allocation.placement = Placement::kInside;
  allocation.freed = true;
  allocation.size_bytes = 800;
  REQUIRE(DescribePlacement(allocation) == "inside an 800-byte freed allocation");
}

}  // namespace
}  // namespace ops_debug::analysis
