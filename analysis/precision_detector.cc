// Merging, what belongs to what, and the findings (precision_detector.h); the sentences are in
// precision_words.cc.
#include "analysis/precision_detector.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/finding_parts.h"
#include "analysis/numeric_words.h"
#include "analysis/precision_words.h"

namespace ops_debug::analysis {
namespace {

using proto::NumericalFault;

constexpr size_t kMostConsequences = 4;
// Bits that a difference may lose before it is worth a note, by precision of the type.
constexpr double kShareOfBits = 0.8;

bool IsEarlier(const NumericalFault& a, const NumericalFault& b) {
  const auto position = [](const NumericalFault& fault) {
    const proto::Dim3& block = fault.block();
    const proto::Dim3& thread = fault.thread();
    return std::tuple(fault.launch().launch_id(), block.z(), block.y(), block.x(), thread.z(),
                      thread.y(), thread.x());
  };
  return position(a) < position(b);
}

bool IsTrace(NumericalFault::Kind kind) {
  return kind == NumericalFault::KIND_NARROWING_LOSS ||
         kind == NumericalFault::KIND_WIDENED_ROUNDED;
}

bool MakesInfinity(NumericalFault::Kind kind) {
  return kind == NumericalFault::KIND_INF_CREATED || kind == NumericalFault::KIND_OVERFLOW ||
         kind == NumericalFault::KIND_NARROWING_OVERFLOW;
}

// Into memory, or into a narrower type, which is on its way there.
bool LeadsOut(const NumericalFault& fault) {
  const std::string operation = OperationOf(fault.site().instruction());
  return operation == "st" || operation == "red" || operation == "atom" || operation == "cvt";
}

// Triton stores all numbers as bits, which nobody looks at.
bool IsPython(const NumericalFault& fault) {
  return std::any_of(fault.site().frames().begin(), fault.site().frames().end(),
                     [](const proto::SourceFrame& frame) { return frame.file().ends_with(".py"); });
}

// Infinity with this sign among the operands (0: any).
bool HasInfiniteOperand(const NumericalFault& fault, int sign = 0) {
  return std::any_of(fault.operands().begin(), fault.operands().end(),
                     [&](const proto::NumericValue& value) {
                       const std::optional<double> number = ToDouble(value);
                       return number && std::isinf(*number) && (sign == 0 || *number * sign > 0);
                     });
}

bool HasNanOperand(const NumericalFault& fault) {
  return std::any_of(fault.operands().begin(), fault.operands().end(),
                     [](const proto::NumericValue& value) {
                       const std::optional<double> number = ToDouble(value);
                       return number && std::isnan(*number);
                     });
}

int SignOfResult(const NumericalFault& fault) {
  const std::optional<double> result = ToDouble(fault.result());
  return !result ? 0 : *result > 0 ? 1 : -1;
}

double BitsOf(const std::string& type) {
  return type == "f64" ? 53 : type == "f32" ? 24 : type == "f16" ? 11 : 8;
}

// Sums of numbers of very different size stand still all the time (the tail of a softmax). It
// matters where what is lost is not much smaller than one unit in the last place.
bool StagnationMatters(const NumericalFault& fault) {
  if (fault.operands_size() < 2) return true;
  std::vector<double> values;
  for (const proto::NumericValue& operand : fault.operands()) {
    const std::optional<double> value = ToDouble(operand);
    if (!value) return true;
    values.push_back(std::abs(*value));
  }
  double added = std::min(values[0], values[1]), sum = std::max(values[0], values[1]);
  if (values.size() == 3) {
    added = values[0] * values[1];
    sum = values[2];
  }
  constexpr double kShareOfUnit = 1.0 / 8;
  return added >=
         sum * std::ldexp(kShareOfUnit, 1 - static_cast<int>(BitsOf(fault.operands(0).type())));
}

bool IsSaturating(const NumericalFault& fault) {
  return fault.site().instruction().find(".sat") != std::string::npos;
}

}  // namespace

void PrecisionDetector::Add(uint32_t process_id, const NumericalFault& fault) {
  const std::string place =
      PlaceKey(ToCodePlace(fault.site(), fault.launch().kernel()), fault.site());
  // A line's conversions are told apart by their types, so by their instruction.
  const std::string detail =
      IsTrace(fault.kind()) ? '\1' + std::to_string(fault.site().ptx_line()) : std::string();
  const Key key{process_id, fault.kind(), place + detail};
  const auto [found, is_new] = faults_.try_emplace(key);
  Merged& merged = found->second;
  if (is_new) {
    merged.process_id = process_id;
    merged.order = order_++;
  }
  const bool has_case = fault.count() > 0 || fault.executions() == 0;
  if (is_new || (has_case && (merged.cases == 0 || IsEarlier(fault, merged.first))))
    merged.first = fault;
  if (has_case) {
    merged.count.Add(fault.engine(), fault.count());
    merged.cases += std::max<uint64_t>(fault.count(), 1);
  }
  merged.executions += fault.executions();
  merged.worst = std::max(merged.worst, fault.worst());
  instructions_[key][{fault.site().ptx_line(), fault.site().instruction()}] = true;
  merged.instructions = static_cast<uint32_t>(instructions_[key].size());
}

void PrecisionDetector::ReadFacts() {
  kernels_.clear();
  for (const auto& [key, merged] : faults_) {
    const NumericalFault& fault = merged.first;
    KernelFacts& facts = kernels_[{merged.process_id, fault.launch().kernel()}];
    switch (fault.kind()) {
      case NumericalFault::KIND_VANISHED:
        facts.infinity_dropped |= HasInfiniteOperand(fault);
        break;
      case NumericalFault::KIND_INF_PROPAGATED:
        facts.infinity_stored |= LeadsOut(fault);
        break;
      case NumericalFault::KIND_NAN_PROPAGATED:
        facts.nan_stored |= LeadsOut(fault);
        break;
      default:
        break;
    }
  }
}

// An infinity or NaN that came to nothing: the sigmoid's exp(-x) overflows, and x / inf is 0, as it
// should; a quotient is replaced behind the division. Of half numbers that is not known, since not
// every store of them is seen.
bool PrecisionDetector::IsDropped(const Merged& merged) const {
  const NumericalFault& fault = merged.first;
  const std::string& type = fault.result().type();
  const auto found = kernels_.find({merged.process_id, fault.launch().kernel()});
  if (found == kernels_.end() || (type != "f32" && type != "f64") || IsPython(fault)) return false;
  const KernelFacts& facts = found->second;
  switch (fault.kind()) {
    case NumericalFault::KIND_OVERFLOW:
      return facts.infinity_dropped && !facts.infinity_stored && !facts.nan_stored;
    case NumericalFault::KIND_INF_CREATED:
      return !facts.infinity_stored && !facts.nan_stored;
    case NumericalFault::KIND_NAN_CREATED:
      return !facts.nan_stored;
    default:
      return false;
  }
}

const PrecisionDetector::Merged* PrecisionDetector::CauseOf(const Merged& merged) const {
  const NumericalFault& fault = merged.first;
  const NumericalFault::Kind kind = fault.kind();
  const bool by_infinity = HasInfiniteOperand(fault), by_nan = HasNanOperand(fault);
  const bool is_matrix = kind == NumericalFault::KIND_MATRIX_INPUT;
  const bool follows =
      kind == NumericalFault::KIND_NAN_PROPAGATED || kind == NumericalFault::KIND_INF_PROPAGATED ||
      kind == NumericalFault::KIND_VANISHED || kind == NumericalFault::KIND_UNORDERED_COMPARISON ||
      is_matrix || (kind == NumericalFault::KIND_NAN_CREATED && by_infinity);
  if (!follows) return nullptr;
  const Merged* cause = nullptr;
  for (const auto& [key, other] : faults_) {
    const NumericalFault& made = other.first;
    if (other.process_id != merged.process_id || &other == &merged ||
        made.launch().launch_id() > fault.launch().launch_id()) {
      continue;
    }
    const bool nan_maker = made.kind() == NumericalFault::KIND_NAN_CREATED && (by_nan || is_matrix);
    const bool infinity_maker =
        MakesInfinity(made.kind()) &&
        (is_matrix || by_nan || HasInfiniteOperand(fault, SignOfResult(made)));
    if (!nan_maker && !infinity_maker) continue;
    if (cause == nullptr || IsEarlier(made, cause->first)) cause = &other;
  }
  return cause;
}

const PrecisionDetector::Merged& PrecisionDetector::RootOf(const Merged& merged) const {
  constexpr int kMostSteps = 8;
  const Merged* root = &merged;
  for (int step = 0; step < kMostSteps; ++step) {
    const Merged* cause = CauseOf(*root);
    if (cause == nullptr) break;
    root = cause;
  }
  return *root;
}

// What right programs do all the time, and what others say already, is left out.
bool PrecisionDetector::IsReported(const Merged& merged) const {
  const NumericalFault& fault = merged.first;
  if (IsTrace(fault.kind()) || CauseOf(merged) != nullptr) return false;
  switch (fault.kind()) {
    case NumericalFault::KIND_UNSPECIFIED:
    case NumericalFault::KIND_INF_PROPAGATED:  // masks with -inf, and limits
      return false;
    case NumericalFault::KIND_VANISHED:
      return HasNanOperand(fault);
    case NumericalFault::KIND_UNDERFLOW: {
      // exp of what is far below the maximum is 0, and so is what it is a factor of.
      const std::string operation = OperationOf(fault.site().instruction());
      return operation != "ex2" && operation != "mul" && operation != "fma";
    }
    case NumericalFault::KIND_STAGNATION:
      return StagnationMatters(fault);
    case NumericalFault::KIND_CANCELLATION:
      return fault.operands_size() > 0 &&
             merged.worst >= kShareOfBits * BitsOf(fault.operands(0).type());
    default:
      return true;
  }
}

std::vector<Finding> PrecisionDetector::Finish() {
  ReadFacts();
  std::vector<const Merged*> ordered;
  for (const auto& [key, merged] : faults_) {
    if (IsReported(merged)) ordered.push_back(&merged);
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const Merged* a, const Merged* b) { return a->order < b->order; });
  std::vector<Finding> findings;
  findings.reserve(ordered.size());
  for (const Merged* merged : ordered) findings.push_back(MakeFinding(*merged));
  return findings;
}

Finding PrecisionDetector::MakeFinding(const Merged& merged) {
  const NumericalFault& fault = merged.first;
  Finding finding;
  finding.process_id = merged.process_id;
  // Index arithmetic is repaired where it is, not where its result is used.
  const bool at_origin = fault.kind() == NumericalFault::KIND_INDEX_OVERFLOW && fault.has_origin();
  const proto::Site& site = at_origin ? fault.origin() : fault.site();
  SetPlace(ToCodePlace(site, fault.launch().kernel()), site, finding);
  finding.access.clear();
  finding.space.clear();
  finding.access_bytes = 0;
  finding.engine = fault.engine().empty() ? "ptx" : fault.engine();
  finding.instructions = merged.instructions;
  finding.count = merged.count.Total();
  finding.count_is_lower_bound = merged.count.IsLowerBound();
  // A constant is the same in every thread.
  if (fault.kind() != NumericalFault::KIND_CONSTANT_WIDENED) {
    finding.block = ToExtent(fault.block());
    finding.thread = ToExtent(fault.thread());
  }
  if (IsKnown(fault.launch())) finding.launch = ToLaunch(fault.launch(), symbolizer_);
  const NumericWords words = Describe(
      fault, {.cases = merged.cases, .executions = merged.executions, .worst = merged.worst});
  finding.kind = words.kind;
  finding.cause = words.cause;
  finding.severity = words.severity;
  finding.message = words.message;
  finding.advice = words.advice;
  if (IsDropped(merged)) {
    finding.severity = Severity::kNote;
    finding.message += "; nothing that is stored comes of it";
    finding.advice.clear();
  }
  if (fault.kind() == NumericalFault::KIND_NARROWING_OVERFLOW && IsSaturating(fault))
    finding.severity = Severity::kNote;
  SetConsequences(merged, finding);
  AddLaunchToRelated(finding);
  return finding;
}

// Where what was made came to matter, nearest first.
void PrecisionDetector::SetConsequences(const Merged& merged, Finding& finding) const {
  const NumericalFault& fault = merged.first;
  if (fault.has_origin()) {
    const bool index = fault.kind() == NumericalFault::KIND_INDEX_OVERFLOW;
    const proto::Site& other = index ? fault.site() : fault.origin();
    const CodePlace place = ToCodePlace(other, fault.launch().kernel());
    const std::string at = ShortPlace(place.frames, other.ptx_line());
    const std::string text = Opcode(other.instruction()) + " at " + at;
    if (index) {
      finding.use = "it becomes part of the address of " + text;
    } else {
      finding.message += "; an operand comes from " + text;
    }
    if (!place.frames.empty()) {
      finding.related.push_back({place.frames.front().file, place.frames.front().line,
                                 index ? "the index is used here" : "the operand comes from here"});
    }
  }
  std::vector<const Merged*> consequences;
  for (const auto& [key, other] : faults_) {
    if (&other != &merged && &RootOf(other) == &merged &&
        PlaceKey(ToCodePlace(other.first.site(), ""), other.first.site()) !=
            PlaceKey(ToCodePlace(fault.site(), ""), fault.site())) {
      consequences.push_back(&other);
    }
  }
  // A NaN that comes of it says most.
  std::sort(consequences.begin(), consequences.end(), [](const Merged* a, const Merged* b) {
    const auto rank = [](const Merged* one) {
      return std::tuple(one->first.kind() != NumericalFault::KIND_NAN_CREATED,
                        one->first.launch().launch_id(), one->order);
    };
    return rank(a) < rank(b);
  });
  for (size_t i = 0; i < consequences.size() && i < kMostConsequences; ++i) {
    const NumericalFault& next = consequences[i]->first;
    const CodePlace place = ToCodePlace(next.site(), next.launch().kernel());
    const std::string text = ConsequenceText(next);
    if (finding.use.empty()) {
      finding.use = text + " at " + ShortPlace(place.frames, next.site().ptx_line());
      if (consequences.size() > 1) {
        const size_t more = consequences.size() - 1;
        finding.use += ", and it shows at " + std::to_string(more) +
                       (more == 1 ? " more place" : " more places");
      }
    }
    if (!place.frames.empty())
      finding.related.push_back({place.frames.front().file, place.frames.front().line, text});
  }
}

std::vector<Conversion> PrecisionDetector::Conversions() {
  std::vector<Conversion> conversions;
  for (const auto& [key, merged] : faults_) {
    const NumericalFault& fault = merged.first;
    if (!IsTrace(fault.kind())) continue;
    CodePlace place = ToCodePlace(fault.site(), fault.launch().kernel());
    Conversion conversion;
    conversion.process_id = merged.process_id;
    conversion.kernel = place.kernel;
    conversion.function = place.function;
    conversion.frames = std::move(place.frames);
    conversion.ptx_line = fault.site().ptx_line();
    conversion.instruction = fault.site().instruction();
    conversion.widens = fault.kind() == NumericalFault::KIND_WIDENED_ROUNDED;
    conversion.executions = std::max(merged.executions, merged.cases);
    conversion.rounded = conversion.widens ? 0 : merged.cases;
    conversion.worst_relative_loss = conversion.widens ? 0 : merged.worst;
    if (fault.operands_size() > 0 && merged.cases > 0) {
      conversion.example_from = NumberText(fault.operands(0));
      conversion.example_to = NumberText(fault.result());
    }
    if (fault.operands_size() > 0) conversion.from = fault.operands(0).type();
    conversion.to = fault.result().type();
    if (fault.has_origin()) {
      const CodePlace origin = ToCodePlace(fault.origin(), fault.launch().kernel());
      conversion.origin = Opcode(fault.origin().instruction()) + " at " +
                          ShortPlace(origin.frames, fault.origin().ptx_line());
    }
    conversions.push_back(std::move(conversion));
  }
  std::stable_sort(conversions.begin(), conversions.end(),
                   [](const Conversion& a, const Conversion& b) {
                     return std::tie(a.process_id, a.kernel, a.ptx_line) <
                            std::tie(b.process_id, b.kernel, b.ptx_line);
                   });
  return conversions;
}

}  // namespace ops_debug::analysis
