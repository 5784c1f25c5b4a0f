// --fmad=false as text. (Checked once by hand: ptxas makes the same machine code of the changed
// text as of the original under --fmad=false.)
#include "interposer/unfused_arithmetic.h"

#include <catch2/catch.hpp>

namespace ops_debug::interposer {

TEST_CASE("floating-point operations without rounding get one") {
  CHECK(ForbidFusing("mul.f32 %f1, %f2, %f3;") == "mul.rn.f32 %f1, %f2, %f3;");
  CHECK(ForbidFusing("@%p1 add.ftz.sat.f32 a,b,c;") == "@%p1 add.rn.ftz.sat.f32 a,b,c;");
  CHECK(ForbidFusing("{sub.f64 a,b,c;}") == "{sub.rn.f64 a,b,c;}");
  CHECK(ForbidFusing("L:add.f16x2 a,b,c;mul.bf16x2 a,b,c;") ==
        "L:add.rn.f16x2 a,b,c;mul.rn.bf16x2 a,b,c;");
}

TEST_CASE("everything else stays as it is") {
  for (const char* text :
       {"mul.rn.f32 a,b,c;", "add.rz.ftz.f32 a,b,c;", "mul.wide.s32 a,b,c;", "add.s64 a,b,c;",
        "fma.rn.f32 a,b,c,d;", "mad.lo.s32 a,b,c,d;", "// mul.f32 is a comment\n", "/* add.f32 */",
        ".file 1 \"mul.f32\"", "red.global.add.f32 [a], b;", "atom.add.f32 a,[b],c;", "vmul.f32",
        "%add.f32", "mul.f32"}) {
    if (std::string(text) == "mul.f32") {
      CHECK(ForbidFusing(text) == "mul.rn.f32");
    } else {
      CHECK(ForbidFusing(text) == text);
    }
  }
}

}  // namespace ops_debug::interposer
