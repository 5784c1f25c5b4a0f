// Exceptional values have an exponent of ones. f32 is compared (one machine instruction, as the
// absolute value is part of it); for halves and f64 integers do, in few instructions on every
// architecture: the mask of the exponent, and for pairs a carry out of each.
#include "shadow/passes/precision_text.h"

#include <bit>
#include <cmath>
#include <cstdio>

#include "shadow/passes/make_twins.h"

namespace ops_debug::shadow {
namespace {

using ptx::Operand;

std::string Number(uint64_t value) { return std::to_string(value); }

std::string FloatLiteral(float value) {
  char text[16];
  std::snprintf(text, sizeof text, "0f%08X", std::bit_cast<uint32_t>(value));
  return text;
}
std::string DoubleLiteral(double value) {
  char text[24];
  std::snprintf(text, sizeof text, "0d%016llX",
                static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
  return text;
}

// Smallest magnitude that rounds to infinity, or beyond the largest number.
double OverflowLimit(NumericType type) {
  switch (type) {
    case kTypeF16:
      return 65520;
    case kTypeE5m2:
      return 61440;
    case kTypeE4m3:
      return 464;
    case kTypeBf16:
      return 0x1.ffp127;
    case kTypeTf32:
      return 0x1.ffep127;
    default:
      return 0x1.ffffffp127;
  }
}
// Largest magnitude that rounds to 0; 0: of no interest.
double UnderflowLimit(NumericType type) {
  switch (type) {
    case kTypeF16:
      return 0x1p-25;
    case kTypeE5m2:
      return 0x1p-17;
    case kTypeE4m3:
      return 0x1p-10;
    default:
      return 0;
  }
}

bool IsNarrowType(NumericType type) { return type == kTypeF16 || type == kTypeBf16; }

uint32_t ShapeOf(const NumericTest& test) {
  const NumericInstruction& what = test.what;
  uint32_t shape = NumericShape(what.operation, what.operand_type, what.result_type);
  if (what.packed) shape |= kNumericPacked;
  if (test.accumulator >= 0) shape |= kNumericStagnationTested;
  if (test.accumulator == 0) shape |= kNumericAccumulatorFirst;
  const bool underflows = what.operation == kOperationMultiply ||
                          what.operation == kOperationDivide || what.operation == kOperationExp2 ||
                          what.operation == kOperationReciprocal;
  if (underflows) shape |= kNumericUnderflowTested;
  return shape;
}

std::string CallText(const std::string& name, std::span<const std::string> words,
                     std::span<const std::string> longs) {
  std::string declare, store, list;
  size_t count = 0;
  const auto add = [&](const char* type, const std::string& value) {
    const std::string parameter = "odsn" + Number(count++);
    declare += ".param " + std::string(type) + " " + parameter + ";\n";
    store += "st.param" + std::string(type) + " [" + parameter + "], " + value + ";\n";
    list += (list.empty() ? "" : ", ") + parameter;
  };
  for (const std::string& word : words) add(".b32", word);
  for (const std::string& value : longs) add(".b64", value);
  return "{\n" + declare + store + "call " + name + ", (" + list + ");\n}\n";
}

}  // namespace

// Holds if all comparisons do. In front of a slow block the first is enough.
struct PrecisionText::Term {
  struct Comparison {
    std::string relation, type, left, right;
  };
  std::string prepare;
  std::vector<Comparison> all;
  bool first_is_enough = false;
};

std::string PrecisionScratchText() {
  return ".reg .b64 %odsna, %odsnb, %odsnc, %odsnr;\n.reg .f64 %odsnd;\n.reg .f32 %odsnf, "
         "%odsng;\n.reg .b32 %odsnw, %odsnv, %odsnu;\n.reg .b16 %odsnh, %odsni;\n.reg .pred "
         "%odsnp, "
         "%odsnq, %odsno;\n";
}

PrecisionText::Term PrecisionText::Exceptional(const Operand& value, NumericType type, bool packed,
                                               TextArguments* arguments) const {
  const std::string name = arguments->Add(value);
  switch (type) {
    case kTypeF64:
      return {"mov.b64 {%odsnv, %odsnw}, " + name + ";\nand.b32 %odsnw, %odsnw, 0x7ff00000;\n",
              {{"eq", "u32", "%odsnw", "0x7ff00000"}}};
    case kTypeF16:
    case kTypeBf16: {
      const std::string mask = type == kTypeF16 ? "0x7c00" : "0x7f80";
      if (!packed) {
        return {"mov.b16 %odsnh, " + name + ";\nand.b16 %odsnh, %odsnh, " + mask + ";\n",
                {{"eq", "u16", "%odsnh", mask}}};
      }
      return {"mov.b32 %odsnw, " + name + ";\nand.b32 %odsnw, %odsnw, " +
                  (type == kTypeF16 ? "0x7c007c00" : "0x7f807f80") + ";\nadd.u32 %odsnw, %odsnw, " +
                  (type == kTypeF16 ? "0x04000400" : "0x00800080") +
                  ";\nand.b32 %odsnw, %odsnw, 0x80008000;\n",
              {{"ne", "u32", "%odsnw", "0"}}};
    }
    case kTypeE4m3:
    case kTypeE5m2:
      // The largest number, which is what saturation gives, or beyond.
      return {"mov.b16 %odsnh, " + name +
                  ";\nand.b16 %odsnh, %odsnh, 0x7f7f;\nadd.u16 %odsnh, %odsnh, " +
                  (type == kTypeE4m3 ? "0x0202" : "0x0505") +
                  ";\nand.b16 %odsnh, %odsnh, 0x8080;\n",
              {{"ne", "u16", "%odsnh", "0"}}};
    default:
      return {"abs.f32 %odsnf, " + name + ";\n", {{"geu", "f32", "%odsnf", "0f7F800000"}}};
  }
}

void PrecisionText::AddNanTerms(const NumericTest& test, TextArguments* arguments,
                                std::vector<Term>* terms) const {
  const NumericType type = test.what.operand_type;
  if (type == kTypeF32 || type == kTypeF64) {
    terms->push_back({"",
                      {{"nan", NameOf(type), arguments->Add(test.operands[0]),
                        arguments->Add(test.operands[1])}}});
    return;
  }
  for (const Operand& operand : test.operands) {
    if (!operand.IsRegister()) continue;
    if (test.what.packed) {
      terms->push_back(Exceptional(operand, type, true, arguments));
      continue;
    }
    terms->push_back(
        {"mov.b16 %odsnh, " + arguments->Add(operand) + ";\nand.b16 %odsnh, %odsnh, 0x7fff;\n",
         {{"gt", "u16", "%odsnh", type == kTypeF16 ? "0x7c00" : "0x7f80"}}});
  }
}

void PrecisionText::AddConversionTerms(const NumericTest& test, TextArguments* arguments,
                                       std::vector<Term>* terms) const {
  const NumericInstruction& what = test.what;
  if (what.Widens()) return;
  const bool from_double = what.operand_type == kTypeF64 && what.result_type == kTypeF32;
  if (what.operand_type != kTypeF32 && !from_double) {
    const bool pair = what.packed || what.result_type == kTypeE4m3;
    terms->push_back(Exceptional(test.results[0], what.result_type, pair, arguments));
    return;
  }
  for (const Operand& operand : test.operands) {
    if (!operand.IsRegister()) continue;
    const std::string name = arguments->Add(operand);
    const double limit = OverflowLimit(what.result_type);
    if (from_double) {
      terms->push_back(
          {"abs.f64 %odsnd, " + name + ";\n", {{"geu", "f64", "%odsnd", DoubleLiteral(limit)}}});
      continue;
    }
    terms->push_back({"abs.f32 %odsnf, " + name + ";\n",
                      {{"geu", "f32", "%odsnf", FloatLiteral(static_cast<float>(limit))}}});
    if (const double tiny = UnderflowLimit(what.result_type); tiny != 0) {
      terms->push_back({"abs.f32 %odsnf, " + name + ";\n",
                        {{"le", "f32", "%odsnf", FloatLiteral(static_cast<float>(tiny))},
                         {"ne", "f32", "%odsnf", "0f00000000"}}});
    }
  }
}

// A result of 0 from operands that are not 0. Of halves the device finds out about the operands.
void PrecisionText::AddUnderflowTerm(const NumericTest& test, TextArguments* arguments,
                                     std::vector<Term>* terms) const {
  const NumericInstruction& what = test.what;
  const bool both = what.operation == kOperationMultiply;
  if (!both && what.operation != kOperationDivide && what.operation != kOperationExp2) return;
  if (what.packed || what.operand_type == kTypeF64) return;
  const std::string result = arguments->Add(test.results[0]);
  if (IsNarrowType(what.operand_type)) {
    terms->push_back({"mov.b16 %odsnh, " + result + ";\nand.b16 %odsnh, %odsnh, 0x7fff;\n",
                      {{"eq", "u16", "%odsnh", "0"}}});
    return;
  }
  Term term{"", {{"eq", "f32", result, "0f00000000"}}, true};
  const bool exponential = what.operation == kOperationExp2;
  term.all.push_back(
      {"neu", "f32", arguments->Add(test.operands[0]), exponential ? "0fFF800000" : "0f00000000"});
  if (both) term.all.push_back({"neu", "f32", arguments->Add(test.operands[1]), "0f00000000"});
  terms->push_back(std::move(term));
}

// x + y == x though x + 2y != x: what is added is more than a quarter of x's last place, so that it
// would count if it were added twice. Much smaller terms may be left out of any sum.
void PrecisionText::AddStagnationTerms(const NumericTest& test, TextArguments* arguments,
                                       std::vector<Term>* terms) const {
  if (test.accumulator < 0) return;
  const NumericInstruction& what = test.what;
  const bool fused = what.operation == kOperationFma;
  const std::string sum = arguments->Add(test.operands[static_cast<size_t>(test.accumulator)]);
  const std::string result = arguments->Add(test.results[0]);
  const std::string added = fused ? arguments->Add(test.operands[0])
                                  : arguments->Add(test.operands[1 - test.accumulator]);
  std::string type = NameOf(what.operand_type);
  if (what.operand_type == kTypeF32) {
    const std::string twice =
        fused ? "mul.f32 %odsnf, " + added + ", 0f40000000;\nfma.rn.f32 %odsnf, %odsnf, " +
                    arguments->Add(test.operands[1]) + ", " + sum + ";\n"
              : "fma.rn.f32 %odsnf, " + added + ", 0f40000000, " + sum + ";\n";
    terms->push_back({twice, {{"eq", "f32", result, sum}, {"neu", "f32", "%odsnf", sum}}, false});
    return;
  }
  const std::string scratch = what.packed ? "%odsnw" : "%odsnh";
  if (what.packed) type += "x2";
  const bool half = what.operand_type == kTypeF16;
  const std::string two =
      half ? (what.packed ? "0x40004000" : "0x4000") : (what.packed ? "0x40004000" : "0x4000");
  const std::string bits = what.packed ? "b32" : "b16";
  std::string prepare = "mov." + bits + " " + scratch + ", " + two + ";\n";
  if (fused) {
    // Minus 0 is what adding leaves everything as it is.
    const std::string zero = what.packed ? "%odsnv" : "%odsni";
    prepare += "mov." + bits + " " + zero + ", " + (what.packed ? "0x80008000" : "0x8000") +
               ";\nfma.rn." + type + " " + scratch + ", " + added + ", " + scratch + ", " + zero +
               ";\nfma.rn." + type + " " + scratch + ", " + scratch + ", " +
               arguments->Add(test.operands[1]) + ", " + sum + ";\n";
  } else {
    prepare +=
        "fma.rn." + type + " " + scratch + ", " + added + ", " + scratch + ", " + sum + ";\n";
  }
  if (!what.packed) {
    prepare +=
        "xor.b16 %odsni, " + result + ", " + sum + ";\nxor.b16 %odsnh, %odsnh, " + sum + ";\n";
    terms->push_back({prepare, {{"eq", "u16", "%odsni", "0"}, {"ne", "u16", "%odsnh", "0"}}});
    return;
  }
  prepare += "xor.b32 %odsnv, " + result + ", " + sum + ";\nxor.b32 %odsnw, %odsnw, " + sum + ";\n";
  for (const char* mask : {"0xffff", "0xffff0000"}) {
    terms->push_back(
        {prepare + "and.b32 %odsnv, %odsnv, " + mask + ";\nand.b32 %odsnw, %odsnw, " + mask + ";\n",
         {{"eq", "u32", "%odsnv", "0"}, {"ne", "u32", "%odsnw", "0"}}});
  }
}

std::vector<PrecisionText::Term> PrecisionText::Terms(const NumericTest& test,
                                                      TextArguments* arguments) const {
  const NumericInstruction& what = test.what;
  std::vector<Term> terms;
  switch (what.operation) {
    case kOperationCompare:
    case kOperationMinMax:
      AddNanTerms(test, arguments, &terms);
      return terms;
    case kOperationConvert:
      AddConversionTerms(test, arguments, &terms);
      return terms;
    case kOperationStore:
      terms.push_back(Exceptional(test.operands[0], what.operand_type, what.packed, arguments));
      return terms;
    case kOperationToInteger: {
      const bool wide = what.operand_type == kTypeF64;
      const std::string scratch = wide ? "%odsnd" : "%odsnf", type = NameOf(what.operand_type);
      terms.push_back(
          {"abs." + type + " " + scratch + ", " + arguments->Add(test.operands[0]) + ";\n",
           {{"geu", type, scratch,
             wide ? DoubleLiteral(what.integer_limit)
                  : FloatLiteral(static_cast<float>(what.integer_limit))}}});
      return terms;
    }
    default:
      break;
  }
  if (!test.seen_later) {
    for (const Operand& result : test.results)
      terms.push_back(Exceptional(result, what.result_type, what.packed, arguments));
  }
  // An infinite divisor makes 0.
  const size_t divisor = what.operation == kOperationDivide ? 1 : 0;
  if ((what.operation == kOperationDivide || what.operation == kOperationReciprocal ||
       what.operation == kOperationReciprocalSquareRoot) &&
      test.operands[divisor].IsRegister()) {
    terms.push_back(Exceptional(test.operands[divisor], what.operand_type, what.packed, arguments));
  }
  AddUnderflowTerm(test, arguments, &terms);
  AddStagnationTerms(test, arguments, &terms);
  return terms;
}

std::string PrecisionText::GroupTest(std::span<const NumericTest> tests,
                                     TextArguments* arguments) const {
  std::string text;
  bool first = true, matrix = false;
  for (const NumericTest& test : tests) {
    matrix |= test.what.operation == kOperationMatrix;
    const std::string guard =
        test.Guarded() ? (test.guard_negated ? "@!" : "@") + arguments->Add(test.guard) + " " : "";
    for (const Term& term : Terms(test, arguments)) {
      const size_t count = term.first_is_enough ? 1 : term.all.size();
      if (first && (test.Guarded() || count > 1)) text += "setp.ne.u32 %odsnp, 0, 0;\n";
      const bool fresh = first && !test.Guarded() && count == 1;
      first = false;
      text += term.prepare;
      for (size_t i = 0; i < count; i++) {
        const Term::Comparison& c = term.all[i];
        const std::string operands = ", " + c.left + ", " + c.right;
        if (count == 1) {
          text += guard + "setp." + c.relation + (fresh ? "." : ".or.") + c.type + " %odsnp" +
                  operands + (fresh ? "" : ", %odsnp") + ";\n";
        } else {
          text += "setp." + c.relation + (i == 0 ? "." : ".and.") + c.type + " %odsnq" + operands +
                  (i == 0 ? "" : ", %odsnq") + ";\n";
        }
      }
      if (count > 1) text += guard + "or.pred %odsnp, %odsnp, %odsnq;\n";
    }
  }
  if (first) return "setp.ne.u32 %odsnp, 0, 0;\n";
  if (matrix) text += "vote.sync.any.pred %odsnp, %odsnp, 0xffffffff;\n";
  return text;
}

// The operand's bits in a 64-bit scratch register.
std::string PrecisionText::Bits(const Operand* operand, const NumericInstruction& what,
                                const std::string& target, TextArguments* arguments) const {
  if (operand == nullptr) return "mov.u64 " + target + ", 0;\n";
  if (!operand->IsRegister()) {
    const auto bits = LiteralBits(*operand, what.operand_type);
    return "mov.u64 " + target + ", " + Number(bits.value_or(0)) + ";\n";
  }
  const std::string name = arguments->Add(*operand);
  const bool is_signed = what.operand_type == kTypeInteger && what.integer_signed;
  switch (ptx::TypeSizeBytes(function_.registers[operand->reg].type)) {
    case 2:
      return "mov.b16 %odsnh, " + name + ";\n" + (is_signed ? "cvt.s64.s16 " : "cvt.u64.u16 ") +
             target + ", %odsnh;\n";
    case 4:
      return "mov.b32 %odsnw, " + name + ";\n" + (is_signed ? "cvt.s64.s32 " : "cvt.u64.u32 ") +
             target + ", %odsnw;\n";
    case 8:
      return "mov.b64 " + target + ", " + name + ";\n";
    default:
      return "mov.u64 " + target + ", 0;\n";
  }
}

std::string PrecisionText::Call(const NumericTest& test, const Operand* c, const Operand* result,
                                TextArguments* arguments) const {
  const auto operand = [&](size_t index) {
    return index < test.operands.size() ? &test.operands[index] : nullptr;
  };
  std::string text;
  if (test.what.operation == kOperationMatrix) {
    text = "selp.u64 %odsna, 1, 0, %odsno;\nmov.u64 %odsnb, 0;\n";
  } else {
    text = Bits(operand(0), test.what, "%odsna", arguments) +
           Bits(operand(1), test.what, "%odsnb", arguments);
  }
  if (test.what.operation == kOperationToInteger) {
    text += "mov.u64 %odsnc, " + Number(std::bit_cast<uint64_t>(test.what.integer_limit)) + ";\n";
  } else {
    text += Bits(c, test.what, "%odsnc", arguments);
  }
  NumericInstruction unsigned_result = test.what;
  unsigned_result.operand_type = test.what.result_type;
  unsigned_result.integer_signed = false;
  text += Bits(result, unsigned_result, "%odsnr", arguments);
  const std::string words[] = {Number(test.site), Number(ShapeOf(test))};
  const std::string longs[] = {"%odsna", "%odsnb", "%odsnc", "%odsnr",
                               std::string(kLaunchIdRegister)};
  return text + CallText("__ops_debug_numeric", words, longs);
}

// Whether a factor was exceptional must be asked of the whole warp: each lane holds a part of them.
std::string PrecisionText::SlowMatrixTest(const NumericTest& test, const std::string& unique,
                                          TextArguments* arguments) const {
  const std::string_view type = test.what.matrix_factors;
  std::string text = "setp.ne.u32 %odsno, 0, 0;\n";
  const auto ask = [&](const Term& term) {
    text += term.prepare + "setp." + term.all[0].relation + ".or." + term.all[0].type +
            " %odsno, " + term.all[0].left + ", " + term.all[0].right + ", %odsno;\n";
  };
  for (const Operand& factor : test.factors) {
    if (!factor.IsRegister()) continue;
    const uint32_t bytes = ptx::TypeSizeBytes(function_.registers[factor.reg].type);
    if (type == ".f16" && bytes == 4) ask(Exceptional(factor, kTypeF16, true, arguments));
    if (type == ".bf16" && bytes == 4) ask(Exceptional(factor, kTypeBf16, true, arguments));
    if (type == ".tf32" && bytes == 4) ask(Exceptional(factor, kTypeF32, false, arguments));
    if (type == ".f64" && bytes == 8) ask(Exceptional(factor, kTypeF64, false, arguments));
  }
  text += "vote.sync.any.pred %odsno, %odsno, 0xffffffff;\n";
  for (size_t i = 0; i < test.results.size(); i++) {
    const std::string next = "$ods_num_element" + unique + "_" + Number(i);
    const Term term =
        Exceptional(test.results[i], test.what.result_type, test.what.packed, arguments);
    text += term.prepare + "setp." + term.all[0].relation + "." + term.all[0].type + " %odsnq, " +
            term.all[0].left + ", " + term.all[0].right + ";\n@!%odsnq bra " + next + ";\n" +
            Call(test, &test.operands[i], &test.results[i], arguments) + next + ":\n";
  }
  return text;
}

std::string PrecisionText::SlowTest(const NumericTest& test, const std::string& unique,
                                    TextArguments* arguments) const {
  if (test.what.operation == kOperationMatrix) return SlowMatrixTest(test, unique, arguments);
  const std::string next = "$ods_num_skip" + unique;
  std::string text;
  if (test.Guarded()) {
    text += (test.guard_negated ? "@" : "@!") + arguments->Add(test.guard) + " bra " + next + ";\n";
  }
  NumericTest alone = test;
  alone.seen_later = false;
  text += "setp.ne.u32 %odsnq, 0, 0;\n";
  for (const Term& term : Terms(alone, arguments)) {
    text += term.prepare;
    for (size_t i = 0; i < term.all.size(); i++) {
      const Term::Comparison& c = term.all[i];
      text += "setp." + c.relation + (i == 0 ? "." : ".and.") + c.type + " %odsno, " + c.left +
              ", " + c.right + (i == 0 ? "" : ", %odsno") + ";\n";
    }
    text += "or.pred %odsnq, %odsnq, %odsno;\n";
  }
  const Operand* c = test.operands.size() > 2 ? &test.operands[2] : nullptr;
  const Operand* result = test.results.empty() ? nullptr : &test.results[0];
  return text + "@!%odsnq bra " + next + ";\n" + Call(test, c, result, arguments) + next + ":\n";
}

std::string PrecisionText::Measure(const NumericTest& test, NumericKind kind,
                                   const std::string& unique, TextArguments* arguments) const {
  const std::string next = "$ods_num_measured" + unique;
  std::string text, end;
  if (test.Guarded()) {
    text = (test.guard_negated ? "@" : "@!") + arguments->Add(test.guard) + " bra " + next + ";\n";
    end = next + ":\n";
  }
  text +=
      Bits(&test.operands[0], test.what, "%odsna", arguments) +
      Bits(test.operands.size() > 1 ? &test.operands[1] : nullptr, test.what, "%odsnb", arguments);
  NumericInstruction of_result = test.what;
  of_result.operand_type = test.what.result_type;
  text += Bits(&test.results[0], of_result, "%odsnr", arguments);
  const std::string words[] = {Number(test.site), Number(kind), Number(ShapeOf(test))};
  const std::string longs[] = {"%odsna", "%odsnb", "%odsnr", std::string(kLaunchIdRegister)};
  return text + CallText("__ops_debug_numeric_trace", words, longs) + end;
}

}  // namespace ops_debug::shadow
