// cuLink*: PTX modules that refer to each other become one image.
#include <string>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

const std::string kHeader = ".version 8.0\n.target sm_70\n.address_size 64\n";

// run(int* out): *out = twice(5) + shared_value.
const std::string kMain = kHeader + R"(
.extern .func (.param .b32 result) twice(.param .b32 x);
.extern .global .align 4 .u32 shared_value;
.visible .entry run(.param .u64 run_out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [run_out];
  {
    .param .b32 p;
    .param .b32 q;
    mov.u32 %r1, 5;
    st.param.b32 [p], %r1;
    call.uni (q), twice, (p);
    ld.param.b32 %r2, [q];
  }
  ld.global.u32 %r3, [shared_value];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

// twice(x) = 2x + helper, with a private variable and a private function.
std::string Twice(const std::string& linkage, int extra) {
  return kHeader + ".global .align 4 .u32 helper = " + std::to_string(extra) + R"(;
.func (.param .b32 result) inner(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x];
  ld.global.u32 %r2, [helper];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [result], %r1;
  ret;
}
)" + linkage +
         R"( .func (.param .b32 result) twice(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x];
  add.u32 %r1, %r1, %r1;
  {
    .param .b32 p;
    .param .b32 q;
    st.param.b32 [p], %r1;
    call.uni (q), inner, (p);
    ld.param.b32 %r2, [q];
  }
  st.param.b32 [result], %r2;
  ret;
}
)";
}

const std::string kValue = kHeader + ".visible .global .align 4 .u32 shared_value = 100;\n";

struct Linked {
  CUresult result = CUDA_SUCCESS;
  std::string errors;
  std::string image;
};

Linked Link(const std::vector<std::string>& modules) {
  Linked linked;
  char log[1024] = "?";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUlinkState state = nullptr;
  REQUIRE(cuLinkCreate(2, options, values, &state) == CUDA_SUCCESS);
  for (size_t i = 0; i < modules.size() && linked.result == CUDA_SUCCESS; ++i) {
    const std::string name = "m" + std::to_string(i) + ".ptx";
    linked.result = cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(modules[i].c_str()),
                                  modules[i].size() + 1, name.c_str(), 0, nullptr, nullptr);
  }
  void* image = nullptr;
  size_t bytes = 0;
  if (linked.result == CUDA_SUCCESS) linked.result = cuLinkComplete(state, &image, &bytes);
  if (linked.result == CUDA_SUCCESS) linked.image.assign(static_cast<char*>(image), bytes);
  linked.errors = log;
  CHECK(reinterpret_cast<size_t>(values[1]) == linked.errors.size());
  CHECK(cuLinkDestroy(state) == CUDA_SUCCESS);
  return linked;
}

int RunImage(const std::string& image) {
  Module module(image.data());
  CUdeviceptr out = Allocate(4);
  void* parameters[] = {&out};
  REQUIRE(Launch(module.Function("run"), 1, 1, parameters) == CUDA_SUCCESS);
  int value = 0;
  REQUIRE(cuMemcpyDtoH(&value, out, 4) == CUDA_SUCCESS);
  return value;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("functions and variables of other modules are found") {
  Context context;
  const Linked linked = Link({kMain, Twice(".visible", 1), kValue});
  REQUIRE(linked.result == CUDA_SUCCESS);
  CHECK(linked.errors == "");
  CHECK(RunImage(linked.image) == 111);
}

TEST_CASE("private names of two modules do not meet") {
  Context context;
  // Both have a private `helper` and `inner`; the second module's `other` is not used.
  std::string second = Twice(".visible", 1000);
  for (size_t at = second.find("twice"); at != std::string::npos; at = second.find("twice"))
    second.replace(at, 5, "other");
  const Linked linked = Link({kMain, second, Twice(".visible", 2), kValue});
  REQUIRE(linked.result == CUDA_SUCCESS);
  CHECK(RunImage(linked.image) == 112);
}

TEST_CASE("a strong definition wins over a weak one, and the first of two weak ones is taken") {
  Context context;
  const Linked strong = Link({kMain, Twice(".weak", 3), Twice(".visible", 4), kValue});
  REQUIRE(strong.result == CUDA_SUCCESS);
  CHECK(RunImage(strong.image) == 114);
  const Linked weak = Link({kMain, Twice(".weak", 3), Twice(".weak", 4), kValue});
  REQUIRE(weak.result == CUDA_SUCCESS);
  CHECK(RunImage(weak.image) == 113);
}

TEST_CASE("common variables are one, and give way to a definition") {
  Context context;
  const std::string common = kHeader + ".common .global .align 4 .u32 shared_value;\n";
  const Linked two = Link({kMain, Twice(".visible", 0), common, common});
  REQUIRE(two.result == CUDA_SUCCESS);
  CHECK(RunImage(two.image) == 10);
  const Linked defined = Link({kMain, Twice(".visible", 0), common, kValue});
  REQUIRE(defined.result == CUDA_SUCCESS);
  CHECK(RunImage(defined.image) == 110);
}

TEST_CASE("two definitions of one name are an error that names both modules") {
  Context context;
  const Linked linked = Link({kMain, Twice(".visible", 1), Twice(".visible", 2), kValue});
  CHECK(linked.result == CUDA_ERROR_INVALID_IMAGE);
  CHECK(Contains(linked.errors,
                 "Multiple definition of 'twice' in 'm2.ptx', first defined in 'm1.ptx'"));
}

TEST_CASE("names that nobody defines are an error that lists them") {
  Context context;
  const Linked linked = Link({kMain});
  CHECK(linked.result == CUDA_ERROR_INVALID_IMAGE);
  CHECK(Contains(linked.errors, "Undefined reference to 'twice' in 'm0.ptx'"));
  CHECK(Contains(linked.errors, "Undefined reference to 'shared_value' in 'm0.ptx'"));
}

TEST_CASE("a variable declared with another size is an error") {
  Context context;
  const std::string larger = kHeader + ".visible .global .align 8 .u64 shared_value = 1;\n";
  const Linked linked = Link({kMain, Twice(".visible", 1), larger});
  CHECK(linked.result == CUDA_ERROR_INVALID_IMAGE);
  CHECK(Contains(linked.errors, "Size doesn't match for 'shared_value'"));
}

TEST_CASE("wrong PTX fails where it is added, with its line in the error log") {
  Context context;
  const Linked linked = Link({kHeader + ".visible .entry broken(\n{ ret }\n"});
  CHECK(linked.result == CUDA_ERROR_INVALID_PTX);
  CHECK(Contains(linked.errors, "m0.ptx, line "));
}

TEST_CASE("what a linked image came from can be linked again") {
  Context context;
  const Linked part = Link({Twice(".visible", 6), kValue});
  REQUIRE(part.result == CUDA_SUCCESS);
  const Linked whole = Link({kMain, part.image});
  REQUIRE(whole.result == CUDA_SUCCESS);
  CHECK(RunImage(whole.image) == 116);
}

TEST_CASE("inputs that are not PTX are refused by name") {
  Context context;
  char log[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUlinkState state = nullptr;
  REQUIRE(cuLinkCreate(2, options, values, &state) == CUDA_SUCCESS);
  char archive[] = "!<arch>\n";
  CHECK(cuLinkAddData(state, CU_JIT_INPUT_LIBRARY, archive, sizeof(archive), "libx.a", 0, nullptr,
                      nullptr) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(Contains(log, "libx.a: an archive of host objects"));
  CHECK(cuLinkDestroy(state) == CUDA_SUCCESS);
  CHECK(cuLinkDestroy(state) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("an alias stands for its function") {
  Context context;
  const std::string aliased = kHeader + R"(
.visible .global .align 4 .u32 shared_value = 1;
.visible .func (.param .b32 result) twice(.param .b32 x);
.func (.param .b32 result) original(.param .b32 x)
{
  .reg .b32 %r<2>;
  ld.param.b32 %r1, [x];
  mul.lo.u32 %r1, %r1, 2;
  st.param.b32 [result], %r1;
  ret;
}
.alias twice, original;
)";
  const Linked linked = Link({kMain, aliased});
  REQUIRE(linked.result == CUDA_SUCCESS);
  CHECK(RunImage(linked.image) == 11);
}
