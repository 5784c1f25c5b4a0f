#include "test/emulator/executor/init_session.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <span>
#include <utility>

#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {
namespace {

std::vector<Finding>& Findings() {
  static std::vector<Finding> findings;
  return findings;
}

void Keep(const shadow::EmulatorUninitialisedRead* read) {
  Finding& finding = Findings().emplace_back();
  finding.read = read->read.site.instruction;
  finding.use = read->use;
  if (read->use_site != nullptr) finding.used_at = read->use_site->instruction;
  finding.access = read->read.site.access;
  finding.space = read->read.site.space;
  finding.address = read->address;
  finding.bytes = read->bytes;
  finding.count = read->count;
  finding.thread = read->read.thread[0];
  finding.kernel = read->read.kernel;
}

shadow::EmulatorReportFunctions Functions() {
  shadow::EmulatorReportFunctions functions{};
  functions.uninitialised_read = Keep;
  return functions;
}

std::string JoinUses(const std::vector<Finding>& findings) {
  std::string uses;
  for (const Finding& finding : findings) {
    if (!uses.empty()) uses += " ";
    uses += finding.use;
  }
  return uses;
}

}  // namespace

InitSession::InitSession() : checks_(shadow::kEmulatorChecksInit, Functions()) {
  Findings().clear();
  operation_ = checks_.Register({});
  out_ = Allocate(kRawBytes);
  raw_ = Allocate(kRawBytes);
  good_ = Allocate(kRawBytes);
  std::memset(reinterpret_cast<void*>(out_), 0, kRawBytes);
  Write(out_, kRawBytes);
  for (uint32_t i = 0; i < kRawBytes / 4; ++i) reinterpret_cast<uint32_t*>(good_)[i] = i;
  Write(good_, kRawBytes);
}

uint64_t InitSession::Allocate(uint64_t bytes) {
  const uint64_t address = memory_.Allocate(bytes);
  checks_.Renew(address, bytes);
  return address;
}

const std::vector<Finding>& InitSession::Run(const std::string& body, uint32_t threads,
                                             const std::string& preamble, uint32_t blocks) {
  const std::string ptx = R"(.version 8.5
.target sm_90
.address_size 64
)" + preamble + R"(
.visible .entry kernel(.param .u64 out, .param .u64 raw, .param .u64 good)
{
.reg .pred %p<64>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .f32 %f<64>; .reg .f64 %fd<64>;
ld.param.u64 %rd1, [out];
ld.param.u64 %rd2, [raw];
ld.param.u64 %rd4, [good];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd3, %r1, 8, %rd1;
mad.wide.u32 %rd5, %r1, 4, %rd2;
)" + body + "\nret;\n}\n";
  auto loaded = Program::Load(ptx, memory_);
  if (!loaded.ok()) FAIL(loaded.error().ToString() << "\n" << ptx);
  programs_.push_back(std::move(*loaded));
  const Program& program = *programs_.back();
  const uint64_t parameters[3] = {out_, raw_, good_};
  LaunchConfig config;
  config.grid = {blocks, 1, 1};
  config.block = {threads, 1, 1};
  config.parameters = std::as_bytes(std::span(parameters));
  config.checks = &checks_;
  const LaunchOutcome outcome =
      emulator::Run(program, *program.FindKernel("kernel"), config, DeviceModel{}, memory_, 1);
  INFO(outcome.error.message);
  REQUIRE(outcome.ok);
  return Findings();
}

std::string Uses(const std::string& body, uint32_t threads, const std::string& preamble) {
  InitSession session;
  return JoinUses(session.Run(body, threads, preamble));
}

std::string UsesWithWritten(uint64_t written, const std::string& body) {
  InitSession session;
  session.Write(session.raw(), written);
  return JoinUses(session.Run(body));
}

}  // namespace ops_debug::emulator
