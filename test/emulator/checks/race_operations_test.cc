// Races between operations: kernels of different streams, copies, fills, the host, programmatic
// dependent launches. The order comes as vector clocks, as the interposer gives it.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/executor.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

std::vector<std::string>* lines = nullptr;

std::string Side(const shadow::EmulatorAccess& access) {
  constexpr const char* kKinds[] = {"?", "load", "store", "atomic"};
  return std::string(access.from_operation ? "operation " : "kernel ") +
         std::to_string(access.token) + " " + kKinds[access.site.access];
}

void AddRace(const shadow::EmulatorRace* race) {
  lines->push_back("kind " + std::to_string(race->kind) + ": " + Side(race->first) + " / " +
                   Side(race->second) + ", missing " + std::to_string(race->missing) + " x" +
                   std::to_string(race->count));
}

// An operation in `slot` with a number of its own, behind what `clock` says.
DeviceOperation Order(uint32_t slot, uint64_t number, std::vector<uint64_t> clock = {}) {
  DeviceOperation operation;
  operation.id = {slot, 0, number};
  operation.token = slot * 100 + number;
  operation.clock = std::move(clock);
  return operation;
}

constexpr char kModule[] = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry writer(.param .u64 data)
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  st.global.u32 [%rd2], %r1; ret; }
.visible .entry early_writer(.param .u64 data)
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  griddepcontrol.launch_dependents;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  st.global.u32 [%rd2], %r1; ret; }
.visible .entry reader(.param .u64 data)
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  ld.global.u32 %r2, [%rd2]; ret; }
.visible .entry waiting_reader(.param .u64 data)
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  griddepcontrol.wait; ld.global.u32 %r2, [%rd2]; ret; }
.visible .entry producer(.param .u64 data)
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, 1; st.global.u32 [%rd1+64], %r1; membar.gl;
  st.relaxed.gpu.global.u32 [%rd1], %r1; ret; }
.visible .entry consumer(.param .u64 data)
{ .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data];
  WAIT: ld.acquire.gpu.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT;
  ld.global.u32 %r2, [%rd1+64]; ret; }
)";

class Device {
 public:
  Device() : checks_(shadow::kEmulatorChecksRaces, Functions()) {
    lines = &lines_;
    auto loaded = Program::Load(kModule, memory_);
    REQUIRE(loaded.ok());
    program_ = std::move(*loaded);
    data = memory_.Allocate(8192);
  }
  ~Device() { lines = nullptr; }

  void Launch(const std::string& kernel, DeviceOperation order, uint32_t threads = 32,
              uint64_t offset = 0) {
    const uint64_t address = data + offset;
    LaunchConfig config;
    config.grid = {1, 1, 1};
    config.block = {threads, 1, 1};
    config.parameters = std::as_bytes(std::span(&address, 1));
    config.checks = &checks_;
    config.operation = checks_.Register(std::move(order));
    const Kernel* const entry = program_->FindKernel(kernel);
    REQUIRE(entry != nullptr);
    const LaunchOutcome outcome =
        Run(*program_, *entry, config, DeviceModel{}, memory_, /*workers=*/1);
    REQUIRE(outcome.ok);
  }
  void Write(DeviceOperation order, uint64_t offset, uint64_t bytes) {
    checks_.Write(*checks_.Register(std::move(order)), data + offset, bytes);
    checks_.Deliver();
  }
  void Read(DeviceOperation order, uint64_t offset, uint64_t bytes) {
    checks_.Read(*checks_.Register(std::move(order)), data + offset, bytes);
    checks_.Deliver();
  }
  Checks& checks() { return checks_; }

  std::string Races() {
    std::string text;
    for (const std::string& line : lines_) text += (text.empty() ? "" : "\n") + line;
    lines_.clear();
    return text.empty() ? "silent" : text;
  }

  uint64_t data = 0;

 private:
  static shadow::EmulatorReportFunctions Functions() {
    shadow::EmulatorReportFunctions functions{};
    functions.race = AddRace;
    return functions;
  }

  DeviceMemory memory_;
  std::unique_ptr<Program> program_;
  std::vector<std::string> lines_;
  Checks checks_;
};

TEST_CASE("two launches of one stream are in order") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.Launch("reader", Order(1, 2));
  CHECK(device.Races() == "silent");
}

TEST_CASE("launches of two streams race unless an event orders them") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.Launch("reader", Order(2, 1));
  CHECK(device.Races() == "kind 4: kernel 101 store / kernel 201 load, missing 13 x32");
  device.Launch("reader", Order(3, 1, {0, 1}));
  CHECK(device.Races() == "silent");
}

TEST_CASE("launches that only read do not race") {
  Device device;
  device.Launch("reader", Order(1, 1));
  device.Launch("reader", Order(2, 1));
  CHECK(device.Races() == "silent");
}

TEST_CASE("launches of two streams that touch different memory") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.Launch("writer", Order(2, 1), 32, 128);
  CHECK(device.Races() == "silent");
}

TEST_CASE("a launch without an order is behind everything") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.Launch("reader", {});
  CHECK(device.Races() == "silent");
}

TEST_CASE("a copy that overwrites what an unordered kernel reads") {
  Device device;
  device.Launch("reader", Order(1, 1));
  device.Write(Order(2, 1), 0, 8192);
  CHECK_THAT(device.Races(), Contains("kind 4: kernel 101 load / operation 201 store, missing 13"));
  device.Launch("reader", Order(1, 2));
  CHECK_THAT(device.Races(), Contains("operation 201 store / kernel 102 load, missing 13 x32"));
  device.Launch("reader", Order(1, 3, {0, 0, 1}));
  CHECK(device.Races() == "silent");
}

TEST_CASE("a copy of a few bytes touches no others") {
  Device device;
  device.Launch("writer", Order(1, 1), 4);
  device.Write(Order(2, 1), 16, 5);
  CHECK(device.Races() == "silent");
  device.Launch("reader", Order(1, 2), 5);
  CHECK_THAT(device.Races(), Contains("operation 201 store / kernel 102 load, missing 13 x1"));
}

TEST_CASE("a copy that only reads does not disturb readers, but writers") {
  Device device;
  device.Read(Order(2, 1), 0, 8192);
  device.Launch("reader", Order(1, 1));
  CHECK(device.Races() == "silent");
  device.Launch("writer", Order(1, 2));
  CHECK_THAT(device.Races(), Contains("operation 201 load / kernel 102 store, missing 13"));
}

TEST_CASE("the host touches what a kernel still uses") {
  Device device;
  device.Launch("writer", Order(1, 1));
  DeviceOperation host = Order(0, 1);
  host.is_host = true;
  device.Read(host, 0, 128);
  CHECK_THAT(device.Races(), Contains("kernel 101 store / operation 1 load, missing 14"));
  host = Order(0, 2, {1, 1});
  host.is_host = true;
  device.Read(host, 0, 128);
  CHECK(device.Races() == "silent");
}

TEST_CASE("memory that was given back has no past") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.checks().Forget(device.data, 64);
  device.Launch("reader", Order(2, 1), 16);
  CHECK(device.Races() == "silent");
  device.Launch("reader", Order(2, 2), 17);
  CHECK_THAT(device.Races(), Contains("x1"));
}

TEST_CASE("new contents alone do not order anything") {
  Device device;
  device.Read(Order(2, 1), 0, 1024);
  device.checks().Renew(device.data, 1024);
  device.Launch("writer", Order(1, 1));
  CHECK_THAT(device.Races(), Contains("operation 201 load / kernel 101 store"));
}

TEST_CASE("hidden memory is not looked at") {
  Device device;
  device.checks().Hide(device.data, 8192);
  device.Launch("writer", Order(1, 1));
  device.Launch("reader", Order(2, 1));
  CHECK(device.Races() == "silent");
}

TEST_CASE("kernels of two streams that synchronise by a flag") {
  Device device;
  device.Launch("producer", Order(1, 1), 1);
  device.Launch("consumer", Order(2, 1), 1);
  CHECK(device.Races() == "silent");
}

TEST_CASE("branches of one graph launch race, its chains do not") {
  Device device;
  const auto node = [](uint32_t number, std::vector<bool> ancestors) {
    DeviceOperation operation = Order(1, 1);
    operation.id.reserved = number;
    operation.ancestors = std::make_shared<const std::vector<bool>>(std::move(ancestors));
    return operation;
  };
  device.Launch("writer", node(1, {}));
  device.Launch("reader", node(2, {false, true}));
  CHECK(device.Races() == "silent");
  device.Launch("reader", node(3, {}));
  CHECK_THAT(device.Races(), Contains("kernel 101 store / kernel 101 load, missing 13"));
}

// ---- programmatic dependent launches

DeviceOperation Dependent(uint32_t slot, uint64_t number) {
  DeviceOperation operation = Order(slot, number);
  operation.is_programmatic = true;
  return operation;
}

TEST_CASE("a dependent launch must wait before it reads what its predecessor writes") {
  Device device;
  device.Launch("early_writer", Order(1, 1));
  device.Launch("reader", Dependent(1, 2));
  CHECK(device.Races() == "kind 2: kernel 101 store / kernel 102 load, missing 12 x32");
  device.Launch("early_writer", Order(1, 3));
  device.Launch("waiting_reader", Dependent(1, 4));
  CHECK(device.Races() == "silent");
}

TEST_CASE("a predecessor that does not trigger ends before its dependents begin") {
  Device device;
  device.Launch("writer", Order(1, 1));
  device.Launch("reader", Dependent(1, 2));
  CHECK(device.Races() == "silent");
}

TEST_CASE("an ordinary launch waits for a predecessor that triggers") {
  Device device;
  device.Launch("early_writer", Order(1, 1));
  device.Launch("reader", Order(1, 2));
  CHECK(device.Races() == "silent");
}

TEST_CASE("a chain of dependents reaches back over one that has not waited") {
  Device device;
  device.Launch("early_writer", Order(1, 1));
  device.Launch("early_writer", Dependent(1, 2), 32, 1024);  // does not wait either
  device.Launch("reader", Dependent(1, 3));
  CHECK_THAT(device.Races(), Contains("kernel 101 store / kernel 103 load, missing 12"));
}

}  // namespace
}  // namespace ops_debug::emulator
