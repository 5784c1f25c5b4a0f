// Numerical faults: kinds, severities, what belongs to what, words, the trace of conversions.
#include "analysis/precision_detector.h"

#include "analysis/precision_trace.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

using proto::NumericalFault;

constexpr char kBase[] = R"(
  launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 128 y: 1 z: 1 } }
  block { } thread { x: 5 } count: 3 engine: "ptx"
)";

constexpr char kInf[] = "0x7f800000", kMinusInf[] = "0xff800000", kNan[] = "0x7fc00000",
               kOne[] = "0x3f800000", kZero[] = "0";

std::string Place(const std::string& instruction, int line) {
  return "site { function: \"_Z1kPf\" ptx_line: " + std::to_string(line + 100) +
         " instruction: \"" + instruction +
         "\" frames { file: \"/src/k.cu\" line: " + std::to_string(line) + " } } ";
}

std::string Operand(const std::string& bits, const std::string& type = "f32") {
  return "operands { type: \"" + type + "\" bits: " + bits + " } ";
}

std::string Result(const std::string& bits, const std::string& type = "f32") {
  return "result { type: \"" + type + "\" bits: " + bits + " } ";
}

NumericalFault Fault(const std::string& kind, const std::string& rest) {
  auto fault = Parse<NumericalFault>(kBase);
  fault.MergeFrom(Parse<NumericalFault>("kind: KIND_" + kind + ' ' + rest));
  return fault;
}

struct Detection {
  HostSymbolizer symbolizer;
  PrecisionDetector detector{symbolizer};

  Detection& Add(const NumericalFault& fault, uint32_t process = 1) {
    detector.Add(process, fault);
    return *this;
  }
  std::vector<Finding> Findings() { return detector.Finish(); }
  Finding Only() {
    const auto findings = Findings();
    REQUIRE(findings.size() == 1);
    return findings[0];
  }
};

Finding FindingOf(const NumericalFault& fault) { return Detection().Add(fault).Only(); }

// With the store of the value that it made.
Finding Made(const NumericalFault& fault) {
  Detection detection;
  detection.Add(fault);
  const bool nan = fault.kind() == NumericalFault::KIND_NAN_CREATED;
  detection.Add(Fault(nan ? "NAN_PROPAGATED" : "INF_PROPAGATED",
                      Place("st.global.f32 [%rd1], %f1;", 70) + Operand(nan ? kNan : kInf)));
  return detection.Findings().at(0);
}

NumericalFault Overflow(int line) {
  return Fault("OVERFLOW",
               Place("ex2.approx.f32 %f1, %f2;", line) + Operand("0x43480000") + Result(kInf));
}

TEST_CASE("kinds, causes and severities of what is made") {
  struct Row {
    std::string kind, place, operands, result, name, cause;
    Severity severity;
  };
  const Row row = GENERATE(
      Row{"NAN_CREATED", "sub.f32 %f1, %f2, %f3;", Operand(kMinusInf) + Operand(kMinusInf),
          Result(kNan), "nan-created", "infinity-minus-infinity", Severity::kError},
      Row{"NAN_CREATED", "div.rn.f32 %f1, %f2, %f3;", Operand(kZero) + Operand(kZero), Result(kNan),
          "nan-created", "zero-by-zero", Severity::kError},
      Row{"NAN_CREATED", "mul.f32 %f1, %f2, %f3;", Operand(kZero) + Operand(kInf), Result(kNan),
          "nan-created", "zero-times-infinity", Severity::kError},
      Row{"NAN_CREATED", "sqrt.rn.f32 %f1, %f2;", Operand("0xbf800000"), Result(kNan),
          "nan-created", "root-of-negative", Severity::kError},
      Row{"INF_CREATED", "div.rn.f32 %f1, %f2, %f3;", Operand(kOne) + Operand(kZero), Result(kInf),
          "inf-created", "division-by-zero", Severity::kError},
      Row{"INF_CREATED", "lg2.approx.f32 %f1, %f2;", Operand(kZero), Result(kMinusInf),
          "inf-created", "logarithm-of-zero", Severity::kWarning},
      Row{"OVERFLOW", "ex2.approx.f32 %f1, %f2;", Operand("0x43480000"), Result(kInf),
          "fp-overflow", "exponential", Severity::kError},
      Row{"OVERFLOW", "fma.rn.f16 %h1, %h2, %h3, %h1;",
          Operand("0x3c00", "f16") + Operand("0x5800", "f16") + Operand("0x7bff", "f16"),
          Result("0x7c00", "f16"), "fp-overflow", "accumulator", Severity::kError},
      Row{"NARROWING_OVERFLOW", "cvt.rn.f16.f32 %h1, %f1;", Operand("0x4790f2c0"),
          Result("0x7c00", "f16"), "fp-overflow", "narrowing", Severity::kError},
      Row{"NARROWING_OVERFLOW", "cvt.rzi.s32.f32 %r1, %f1;", Operand("0x4f800000"), "",
          "fp-overflow", "to-integer", Severity::kWarning},
      Row{"NARROWING_UNDERFLOW", "cvt.rn.f16.f32 %h1, %f1;", Operand("0x2edbe6ff"),
          Result("0", "f16"), "fp-underflow", "narrowing", Severity::kNote},
      Row{"STAGNATION", "add.f16 %h1, %h1, %h2;",
          Operand("0x6800", "f16") + Operand("0x3c00", "f16"), Result("0x6800", "f16"),
          "precision-loss", "stagnation", Severity::kWarning},
      Row{"INDEX_OVERFLOW", "ld.global.f32 %f1, [%rd1];", "", Result("0x80000000", "s32"),
          "index-overflow", "32-bit-index", Severity::kError},
      Row{"MATRIX_INPUT", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {}, {}, {}, {};", "",
          "", "fp-overflow", "matrix-input", Severity::kWarning});
  const Finding finding = Made(Fault(row.kind, Place(row.place, 7) + row.operands + row.result));
  REQUIRE(finding.kind == row.name);
  REQUIRE(finding.cause == row.cause);
  REQUIRE(finding.severity == row.severity);
  REQUIRE_FALSE(finding.advice.empty());
}

TEST_CASE("values stand in the message as decimals of their type") {
  REQUIRE(
      FindingOf(Fault("NARROWING_OVERFLOW", Place("cvt.rn.f16.f32 %h1, %f1;", 7) +
                                                Operand("0x4790f2c0") + Result("0x7c00", "f16")))
          .message == "cvt.rn.f16.f32 of 74213.5 gives +inf: the largest half is 65504");
  REQUIRE(Made(Fault("NAN_CREATED", Place("@%p1 sub.f32 %f1, %f2, %f3;", 7) + Operand(kMinusInf) +
                                        Operand(kMinusInf) + Result(kNan)))
              .message == "sub.f32: (-inf) - (-inf) gives NaN, and no operand is NaN");
  REQUIRE(FindingOf(Fault("OVERFLOW", Place("fma.rn.f16 %h1, %h2, %h3, %h1;", 7) +
                                          Operand("0x3c00", "f16") + Operand("0x5800", "f16") +
                                          Operand("0x7bff", "f16") + Result("0x7c00", "f16")))
              .message == "fma.rn.f16: 1 * 128 + 65504 gives +inf: the largest half is 65504");
}

TEST_CASE("an index is told exactly and as it was used, at the arithmetic's line") {
  const Finding finding = FindingOf(
      Fault("INDEX_OVERFLOW",
            Place("ld.global.f32 %f1, [%rd1];", 9) + Result("0x80000eff", "s32") +
                "exact_value: 2147487999 wrapped_value: -2147479297 "
                "origin { function: \"_Z1kPf\" ptx_line: 90 instruction: "
                "\"mad.lo.s32 %r1, %r2, %r3, %r4;\" frames { file: \"/src/k.cu\" line: 8 } }"));
  REQUIRE(finding.frames[0].line == 8);
  REQUIRE(
      finding.message ==
      "mad.lo.s32 wraps: the index is 2147487999, which does not fit int; -2147479297 is used in "
      "its place");
  REQUIRE(finding.use == "it becomes part of the address of ld.global.f32 at k.cu:9");
  REQUIRE(finding.related[0].line == 9);
}

TEST_CASE("a constant is told as its author wrote it") {
  const Finding finding = FindingOf(
      Fault("CONSTANT_WIDENED", Place("mul.f64 %fd1, %fd2, 0d3FBEB851E0000000;", 7) +
                                    Operand("0x3df5c28f") + Result("0x3fbeb851e0000000", "f64")));
  REQUIRE(finding.kind == "precision-loss");
  REQUIRE(finding.severity == Severity::kWarning);
  REQUIRE(
      finding.message ==
      "the constant 0.12f is a float in an expression of type double: 0.11999999731779099 takes "
      "its place");
}

TEST_CASE("faults of one line add up; the earliest launch and lowest thread speak") {
  Detection detection;
  auto later = Overflow(7);
  later.mutable_launch()->set_launch_id(5);
  auto lower = Overflow(7);
  lower.mutable_thread()->set_x(1);
  detection.Add(later).Add(Overflow(7)).Add(lower).Add(Overflow(8)).Add(Overflow(7), 2);
  const auto findings = detection.Findings();
  REQUIRE(findings.size() == 3);
  REQUIRE(findings[0].count == 9);
  REQUIRE(findings[0].launch->number == 2);
  REQUIRE(findings[0].thread->x == 1);
}

TEST_CASE("masks with infinity are silent") {
  Detection detection;
  detection.Add(Fault("INF_PROPAGATED", Place("sub.f32 %f1, %f2, %f3;", 7) + Operand(kMinusInf) +
                                            Operand(kOne) + Result(kMinusInf)));
  detection.Add(Fault("VANISHED", Place("div.rn.f32 %f1, %f2, %f3;", 8) + Operand(kOne) +
                                      Operand(kInf) + Result(kZero)));
  detection.Add(Fault(
      "UNDERFLOW", Place("ex2.approx.f32 %f1, %f2;", 9) + Operand("0xc3480000") + Result(kZero)));
  REQUIRE(detection.Findings().empty());
}

TEST_CASE("a NaN that came of an infinity belongs to the overflow that made it") {
  const Finding finding =
      Detection()
          .Add(Overflow(7))
          .Add(Fault("INF_PROPAGATED", Place("add.f32 %f1, %f2, %f3;", 8) + Operand(kInf) +
                                           Operand(kOne) + Result(kInf)))
          .Add(Fault("NAN_CREATED", Place("div.rn.f32 %f1, %f2, %f3;", 9) + Operand(kInf) +
                                        Operand(kInf) + Result(kNan)))
          .Add(Fault("NAN_PROPAGATED", Place("mul.f32 %f1, %f2, %f3;", 10) + Operand(kNan) +
                                           Operand(kOne) + Result(kNan)))
          .Only();
  REQUIRE(finding.kind == "fp-overflow");
  REQUIRE(finding.frames[0].line == 7);
  REQUIRE(finding.use ==
          "it becomes NaN: div.rn.f32: (+inf) / (+inf) at k.cu:9, and it shows at 2 more places");
}

TEST_CASE("an infinity of the other sign, or one made later, is no cause") {
  auto early = Fault("NAN_CREATED", Place("sub.f32 %f1, %f2, %f3;", 9) + Operand(kMinusInf) +
                                        Operand(kMinusInf) + Result(kNan));
  REQUIRE(Detection().Add(Overflow(7)).Add(early).Findings().size() == 2);
  auto later = Overflow(7);
  later.mutable_launch()->set_launch_id(8);
  auto nan = Fault("NAN_CREATED", Place("div.rn.f32 %f1, %f2, %f3;", 9) + Operand(kInf) +
                                      Operand(kInf) + Result(kNan));
  REQUIRE(Detection().Add(later).Add(nan).Findings().size() == 2);
}

TEST_CASE("an infinity that comes to nothing is a note, one that is stored an error") {
  const auto dropped = Fault("VANISHED", Place("div.rn.f32 %f1, %f2, %f3;", 8) + Operand(kOne) +
                                             Operand(kInf) + Result(kZero));
  REQUIRE(Detection().Add(Overflow(7)).Add(dropped).Only().severity == Severity::kNote);
  const auto stored =
      Fault("INF_PROPAGATED", Place("st.global.f32 [%rd1], %f1;", 9) + Operand(kInf));
  REQUIRE(Detection().Add(Overflow(7)).Add(dropped).Add(stored).Only().severity ==
          Severity::kError);
  REQUIRE(Detection().Add(Overflow(7)).Only().severity == Severity::kError);
  const auto product = Fault("NAN_CREATED", Place("mul.f32 %f1, %f2, %f3;", 9) + Operand(kZero) +
                                                Operand(kInf) + Result(kNan));
  REQUIRE(Detection().Add(product).Only().severity == Severity::kNote);
}

TEST_CASE("a NaN that nothing made is a note about the inputs") {
  const Finding finding =
      FindingOf(Fault("NAN_PROPAGATED", Place("mul.f32 %f1, %f2, %f3;", 7) + Operand(kNan) +
                                            Operand(kOne) + Result(kNan)));
  REQUIRE(finding.severity == Severity::kNote);
  REQUIRE(finding.cause == "came-in");
}

TEST_CASE("a sum that loses what is far below its last place is no finding") {
  REQUIRE(Detection()
              .Add(Fault("STAGNATION", Place("add.f32 %f1, %f1, %f2;", 7) + Operand(kOne) +
                                           Operand("0x2edbe6ff") + Result(kOne)))
              .Findings()
              .empty());
}

TEST_CASE("conversions that were asked to saturate are notes") {
  REQUIRE(FindingOf(Fault("NARROWING_OVERFLOW",
                          Place("cvt.rni.sat.s8.f32 %rs1, %f1;", 7) + Operand("0x47c35000")))
              .severity == Severity::kNote);
}

TEST_CASE("conversions are counted by instruction, and are no findings") {
  Detection detection;
  const std::string narrowing =
      Place("cvt.rn.f16.f32 %h1, %f1;", 7) + Operand("0x3dcccccd") + Result("0x2e66", "f16");
  detection.Add(Fault("NARROWING_LOSS", narrowing + "executions: 64 worst: 0.0001"));
  detection.Add(Fault("NARROWING_LOSS", narrowing + "count: 5 executions: 36 worst: 0.0003"));
  detection.Add(Fault("WIDENED_ROUNDED", Place("cvt.f32.f16 %f1, %h1;", 8) +
                                             "count: 0 executions: 10 " + Operand("0x2e66", "f16") +
                                             Result("0x3dccc000")));
  REQUIRE(detection.Findings().empty());
  const auto conversions = detection.detector.Conversions();
  REQUIRE(conversions.size() == 2);
  REQUIRE(conversions[0].executions == 100);
  REQUIRE(conversions[0].rounded == 8);
  REQUIRE(conversions[0].worst_relative_loss == 0.0003);
  REQUIRE(conversions[0].example_from == "0.1");
  REQUIRE(conversions[0].example_to == "0.099975586");
  REQUIRE(conversions[1].widens);
  REQUIRE(conversions[1].executions == 10);
}

TEST_CASE("the trace is a line per conversion, as JSON and as CSV") {
  Conversion conversion;
  conversion.kernel = "k(float*, int)";
  conversion.frames = {{"", "/src/k.cu", 7, 0}};
  conversion.ptx_line = 107;
  conversion.instruction = "cvt.rn.f16.f32 %h1, %f1;";
  conversion.from = "f32";
  conversion.to = "f16";
  conversion.executions = 64;
  conversion.rounded = 3;
  conversion.worst_relative_loss = 0.25;
  REQUIRE(WriteTraceJson({conversion}) ==
          R"json({"kernel":"k(float*, int)","file":"/src/k.cu","line":7,"ptx_line":107,)json"
          R"("instruction":"cvt.rn.f16.f32 %h1, %f1;","from":"f32","to":"f16","widens":false,)"
          R"("executions":64,"rounded":3,"worst_relative_loss":0.25,"process":0})"
          "\n");
  REQUIRE(WriteTraceCsv({conversion}) ==
          "kernel,function,file,line,ptx_line,instruction,from,to,widens,executions,rounded,"
          "worst_relative_loss,example_from,example_to,origin,process\r\n"
          "\"k(float*, int)\",,/src/k.cu,7,107,\"cvt.rn.f16.f32 %h1, "
          "%f1;\",f32,f16,false,64,3,0.25,,,,0\r\n");
}

}  // namespace
}  // namespace ops_debug::analysis
