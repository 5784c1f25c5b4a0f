// What a capture takes of a module's text.
#include "interposer/kernel_text.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

namespace ops_debug::interposer {
namespace {

const std::string kModule = R"(.version 8.0
.target sm_90
.address_size 64
// .entry commented(
.visible .global .align 4 .u32 counter;
.const .align 4 .b8 text[8] = {123, 125, 0};
.func helper() { ret; }
.visible .entry first(.param .u64 first_param_0)
.maxntid 128, 1, 1
{
  .reg .b32 %r<2>;
  { // a block, and a brace in a comment: }
  mov.u32 %r1, %tid.x;
  }
  call helper;
  ret;
}
	// .globl second
.visible .entry second()
{
  .reg .b64 %rd<2>;
  mov.u64 %rd1, counter;
  ret;
}
)";

size_t LineOf(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  return at == std::string::npos ? 0 : 1 + std::count(text.begin(), text.begin() + at, '\n');
}

TEST_CASE("the other entries become empty lines, and lines keep their numbers") {
  const KernelText text(kModule);
  const std::string second = text.Of({"second"});
  CHECK(LineOf(second, "entry first") == 0);
  CHECK(LineOf(second, "maxntid") == 0);
  CHECK(LineOf(second, "mov.u64 %rd1, counter") == LineOf(kModule, "mov.u64 %rd1, counter"));
  CHECK(LineOf(second, ".func helper") == LineOf(kModule, ".func helper"));
  CHECK(LineOf(second, "text[8]") == LineOf(kModule, "text[8]"));
  CHECK(std::count(second.begin(), second.end(), '\n') ==
        std::count(kModule.begin(), kModule.end(), '\n'));
  const std::string first = text.Of({"first"});
  CHECK(LineOf(first, "call helper") == LineOf(kModule, "call helper"));
  CHECK(LineOf(first, "entry second") == 0);
}

TEST_CASE("two kernels of one capture stay both") {
  CHECK(KernelText(kModule).Of({"second", "first"}) == kModule);
}

TEST_CASE("an entry that another one names stays with everything") {
  const std::string launches =
      kModule +
      ".visible .entry parent()\n{\n  .reg .b64 %rd<2>;\n  mov.u64 %rd1, second;\n  ret;\n}\n";
  CHECK(KernelText(launches).Of({"parent"}) == launches);
  CHECK(LineOf(KernelText(launches).Of({"first"}), "entry parent") == 0);
}

TEST_CASE("debug sections refer to labels of all kernels, so the text stays whole") {
  const std::string debug = kModule + ".section .debug_info\n{\n.b32 5\n}\n";
  CHECK(KernelText(debug).Of({"first"}) == debug);
  const std::string names = kModule + ".section .debug_str\n{\n.b8 65\n}\n";
  CHECK(LineOf(KernelText(names).Of({"first"}), "entry second") == 0);
}

TEST_CASE("names are words outside of comments and strings") {
  const auto names = NamesIn("mov.u64 %rd1, counter; // text\n.file 1 \"helper.cu\"");
  CHECK(names.contains("counter"));
  CHECK(!names.contains("text"));
  CHECK(!names.contains("helper"));
}

}  // namespace
}  // namespace ops_debug::interposer
