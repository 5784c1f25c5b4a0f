// One function per kind; the pattern of the operands names the cause, the cause chooses the advice.
#include "analysis/precision_words.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "analysis/numeric_words.h"

namespace ops_debug::analysis {
namespace {

using proto::NumericalFault;

std::vector<double> Values(const NumericalFault& fault) {
  std::vector<double> values;
  for (const proto::NumericValue& operand : fault.operands())
    values.push_back(ToDouble(operand).value_or(NAN));
  return values;
}

std::string Gives(const NumericalFault& fault) {
  return OperationText(fault) +
         (fault.result().type().empty() ? "" : " gives " + NumberText(fault.result()));
}

std::string Operation(const NumericalFault& fault) {
  return OperationOf(fault.site().instruction());
}

bool IsNarrow(const std::string& type) {
  return type == "f16" || type == "bf16" || type == "e4m3" || type == "e5m2";
}

std::string OperandType(const NumericalFault& fault) {
  return fault.operands_size() > 0 ? fault.operands(0).type() : "";
}

NumericWords NanCreated(const NumericalFault& fault) {
  NumericWords words{.kind = "nan-created"};
  const std::vector<double> values = Values(fault);
  const auto infinite = [&](size_t i) { return i < values.size() && std::isinf(values[i]); };
  const auto zero = [&](size_t i) { return i < values.size() && values[i] == 0; };
  const std::string operation = Operation(fault);
  words.message = Gives(fault) + ", and no operand is NaN";
  if (operation == "div" && zero(0) && zero(1)) {
    words.cause = "zero-by-zero";
    words.advice =
        "guard the division: a sum or count that can be 0 (a row that is fully masked, an empty "
        "group) needs a result of its own";
  } else if (operation == "div" && infinite(0) && infinite(1)) {
    words.cause = "infinity-by-infinity";
    words.advice =
        "both sides have left the type's range before: subtract the row maximum before exp, or "
        "compute numerator and denominator in float32";
  } else if ((operation == "mul" || operation == "fma") &&
             ((infinite(0) && zero(1)) || (zero(0) && infinite(1)))) {
    words.cause = "zero-times-infinity";
    words.advice =
        "a mask that is multiplied on cannot clear an infinity: select (condition ? x : 0) instead "
        "of x * 0, and look where the infinity comes from";
  } else if (operation == "add" || operation == "sub" || operation == "fma") {
    words.cause = "infinity-minus-infinity";
    words.advice =
        "where both sides may be -inf (nothing to attend to: maximum of an empty or fully masked "
        "row), take a finite floor for the maximum, or branch on it";
  } else if (operation == "sqrt" || operation == "rsqrt") {
    words.cause = "root-of-negative";
    words.advice =
        "clamp the argument at 0: a variance as mean(x*x) - mean(x)^2 goes below 0 by rounding; "
        "subtract the mean first, or use fmaxf(x, 0) + epsilon";
  } else if (operation == "lg2") {
    words.cause = "logarithm-of-negative";
    words.advice = "clamp the argument to a small positive number before the logarithm";
  } else {
    words.cause = "invalid-operation";
    words.advice = "keep the operands in the domain of the operation";
  }
  return words;
}

NumericWords InfinityCreated(const NumericalFault& fault) {
  NumericWords words{.kind = "inf-created", .message = Gives(fault)};
  if (Operation(fault) == "lg2") {
    words.cause = "logarithm-of-zero";
    words.severity = Severity::kWarning;
    words.advice = "clamp the argument: logf(fmaxf(x, tiny)), or use log-softmax directly";
  } else {
    words.cause = "division-by-zero";
    words.advice =
        "guard the division: choose the result for a divisor of 0, or add an epsilon to it";
  }
  return words;
}

NumericWords Overflow(const NumericalFault& fault) {
  NumericWords words{.kind = "fp-overflow", .cause = "arithmetic"};
  const std::string type = fault.result().type(), operation = Operation(fault);
  words.message = Gives(fault);
  if (const std::string largest = LargestText(type); !largest.empty())
    words.message += ": the largest " + TypeName(type) + " is " + largest;
  if (operation == "ex2") {
    words.cause = "exponential";
    words.advice =
        "subtract the row maximum before exp: exp(x - max) stays below 1, and the quotient is the "
        "same";
  } else if (IsNarrow(type)) {
    words.cause = "accumulator";
    words.advice = "accumulate in float32 and convert the result, or scale the operands down first";
  } else {
    words.advice =
        "scale the operands, reorder the product, or compute this part in double (in float, if the "
        "type is a narrower one)";
  }
  return words;
}

NumericWords NarrowingOverflow(const NumericalFault& fault) {
  NumericWords words{.kind = "fp-overflow", .cause = "narrowing", .message = Gives(fault)};
  const std::string type = fault.result().type();
  const std::string largest = LargestText(type);
  if (largest.empty()) {
    words.cause = "to-integer";
    words.severity = Severity::kWarning;
    words.message = OperationText(fault) + " does not fit the integer type, which saturates";
    words.advice = "clamp the value first, or use a wider integer type";
    return words;
  }
  words.message += ": the largest " + TypeName(type) + " is " + largest;
  words.advice = "keep this value in " +
                 std::string(OperandType(fault) == "f64" ? "double" : "float32") +
                 (type == "f16" ? " or bfloat16" : "") +
                 ", or scale by the largest absolute value before the conversion and undo it "
                 "behind; where the "
                 "value comes from exp, subtract the row maximum first";
  return words;
}

NumericWords Stagnation(const NumericalFault& fault, const NumericTotals& totals) {
  NumericWords words{
      .kind = "precision-loss", .cause = "stagnation", .severity = Severity::kWarning};
  const std::string type = OperandType(fault);
  words.message = OperationText(fault) +
                  " leaves the sum as it is: what is added is less than half "
                  "a unit in the last place of a " +
                  TypeName(type);
  if (totals.executions > 0) {
    words.message += " (" + std::to_string(totals.cases) + " of " +
                     std::to_string(totals.executions) + " additions)";
  }
  words.advice = IsNarrow(type) ? "accumulate in float32 and convert the result at the end"
                                : "sum in parts (a tree, per-thread partial sums), or with "
                                  "compensation (Kahan), or in double";
  return words;
}

// The shortest decimal that rounds to the float is what the author wrote.
NumericWords ConstantWidened(const NumericalFault& fault) {
  NumericWords words{
      .kind = "precision-loss", .cause = "constant-widened", .severity = Severity::kWarning};
  const std::string written = fault.operands_size() > 0 ? NumberText(fault.operands(0)) : "?";
  words.message = "the constant " + written +
                  "f is a float in an expression of type double: " + NumberText(fault.result()) +
                  " takes its place";
  words.advice = "write the constant as double: " + written + ", without the f";
  return words;
}

NumericWords IndexOverflow(const NumericalFault& fault) {
  NumericWords words{.kind = "index-overflow", .cause = "32-bit-index"};
  const proto::Site& site = fault.has_origin() ? fault.origin() : fault.site();
  const bool is_signed = fault.result().type() != "u32";
  words.message = (fault.has_origin() ? Opcode(site.instruction()) + " wraps: " : std::string()) +
                  "the index is " + std::to_string(fault.exact_value()) + ", which does not fit " +
                  (is_signed ? "int" : "unsigned int") + "; " +
                  std::to_string(fault.wrapped_value()) + " is used in its place";
  words.advice =
      "compute the index in 64 bits: int64_t or size_t for one factor before the multiplication, "
      "as in static_cast<int64_t>(row) * columns + column";
  return words;
}

NumericWords Note(const char* kind, const char* cause, std::string message, std::string advice) {
  return {.kind = kind,
          .cause = cause,
          .severity = Severity::kNote,
          .message = std::move(message),
          .advice = std::move(advice)};
}

std::string RelativeText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::general, 3);
  return {text, end.ptr};
}

}  // namespace

NumericWords Describe(const NumericalFault& fault, const NumericTotals& totals) {
  switch (fault.kind()) {
    case NumericalFault::KIND_NAN_CREATED:
      return NanCreated(fault);
    case NumericalFault::KIND_INF_CREATED:
      return InfinityCreated(fault);
    case NumericalFault::KIND_OVERFLOW:
      return Overflow(fault);
    case NumericalFault::KIND_NARROWING_OVERFLOW:
      return NarrowingOverflow(fault);
    case NumericalFault::KIND_STAGNATION:
      return Stagnation(fault, totals);
    case NumericalFault::KIND_CONSTANT_WIDENED:
      return ConstantWidened(fault);
    case NumericalFault::KIND_INDEX_OVERFLOW:
      return IndexOverflow(fault);
    case NumericalFault::KIND_UNDERFLOW:
      return Note(
          "fp-underflow", "arithmetic", Gives(fault) + ", though no operand is 0",
          "scale the operands up, or use a type of wider range, if small values matter here");
    case NumericalFault::KIND_NARROWING_UNDERFLOW:
      return Note(
          "fp-underflow", "narrowing",
          Gives(fault) + ": too small for " + TypeName(fault.result().type()),
          "if small values matter here (gradients), scale before the conversion and undo it "
          "behind (loss scaling)");
    case NumericalFault::KIND_NAN_PROPAGATED:
    case NumericalFault::KIND_UNORDERED_COMPARISON:
      return Note(
          "nan-created", "came-in",
          Gives(fault) + ": the NaN was there before; nothing that was checked made it",
          "look at the inputs of this kernel: memory that was not written, or the output of "
          "code that is not checked");
    case NumericalFault::KIND_VANISHED:
      return Note(
          "nan-created", "dropped", Gives(fault) + ": a NaN that came in disappears here",
          "fmaxf and fminf prefer the operand that is a number: test for NaN where one must "
          "not go unseen");
    case NumericalFault::KIND_CANCELLATION:
      return Note("precision-loss", "cancellation",
                  Gives(fault) + ": at worst " + RelativeText(totals.worst) +
                      " leading bits cancel, and rounding errors of the operands remain",
                  "subtract before other roundings (variance: subtract the mean first), or compute "
                  "the operands in a wider type");
    case NumericalFault::KIND_MATRIX_INPUT:
      return {
          .kind = "fp-overflow",
          .cause = "matrix-input",
          .severity = Severity::kWarning,
          .message = Opcode(fault.site().instruction()) +
                     " reads an infinity or NaN among its factors: whole rows and columns of the "
                     "result become one",
          .advice = "look where the factors are converted to the narrower type, and scale there"};
    case NumericalFault::KIND_SHADOW_DIFFERENCE:
      return {.kind = "precision-loss",
              .cause = "shadow",
              .severity = Severity::kWarning,
              .message = Gives(fault) + ", at worst " + RelativeText(totals.worst) +
                         " (relative) away from the same computation in higher precision",
              .advice = "compute this part in the wider type"};
    default:
      return Note("precision-loss", "", Gives(fault), "");
  }
}

std::string ConsequenceText(const NumericalFault& fault) {
  switch (fault.kind()) {
    case NumericalFault::KIND_NAN_CREATED:
      return "it becomes NaN: " + OperationText(fault);
    case NumericalFault::KIND_VANISHED:
      return "it disappears: " + Gives(fault);
    case NumericalFault::KIND_UNORDERED_COMPARISON:
      return "it decides a comparison: " + OperationText(fault);
    case NumericalFault::KIND_MATRIX_INPUT:
      return "it becomes a factor of " + Opcode(fault.site().instruction());
    default:
      return "it goes on: " + OperationText(fault);
  }
}

}  // namespace ops_debug::analysis
