#include "test/interposer/handlers/session.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "interposer/driver_api.h"
#include "proto/ring.h"
#include "proto/session.h"
#include "test/interposer/handlers/fake_driver.h"

namespace ops_debug::interposer::handlers_test {
namespace {

// Before the first hooked call, so before main: the options are read once.
std::unique_ptr<proto::RingConsumer> StartSession() {
  const std::string name = "/ops_debug_handlers_test." + std::to_string(getpid());
  std::string error;
  auto ring = proto::RingConsumer::Create(name.c_str(), 8u << 20, &error);
  setenv(proto::kEnvRing, name.c_str(), 1);
  setenv(proto::kEnvChecks, "memory", 1);
  setenv(proto::kEnvQuarantineBytes, "100000", 1);
  setenv(proto::kEnvLeakCheck, "1", 1);
  return ring;
}
const std::unique_ptr<proto::RingConsumer> g_ring = StartSession();

}  // namespace

std::vector<proto::Event> TakeEvents() {
  std::vector<proto::Event> events;
  std::vector<std::byte> message;
  while (g_ring && g_ring->Read(&message)) {
    proto::Event event;
    if (event.ParseFromArray(message.data(), static_cast<int>(message.size())))
      events.push_back(event);
  }
  return events;
}

const char* ScaleText() {
  return R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .b8 table[100];
.visible .entry scale(.param .u64 scale_param_0, .param .u32 scale_param_1)
{
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [scale_param_0];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd4], %f2;
  ret;
}
)";
}

void StartTest() {
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuCtxSynchronize();
  fake::Driver& driver = fake::TheDriver();
  driver.on_launch = nullptr;
  driver.instant_launches = driver.nodes_have_other_handles = false;
  driver.launches.clear();
  driver.module_texts.clear();
  driver.attributes.clear();
  driver.rejected.clear();
  driver.rejected_with = CUDA_ERROR_INVALID_PTX;
  driver.twin_result = driver.original_result = driver.attribute_result = CUDA_SUCCESS;
  driver.free_bytes = 1ull << 30;
  TakeEvents();
}

}  // namespace ops_debug::interposer::handlers_test
