#include "analysis/validate/break_point.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "analysis/validate/sweep.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

constexpr int64_t kMostChannels_probed = 128;
constexpr int64_t kMostElements_probed = int64_t{1} << 22;  // over all probes

uint32_t ChannelAxis(size_t rank) { return rank >= 3 ? 1 : static_cast<uint32_t>(rank - 1); }

// The first input with all channels but `channel` zero.
ValidateCase OnlyChannel(const ValidateCase& whole, uint32_t axis, int64_t channel) {
  ValidateCase probe = whole;
  const proto::Tensor& input = whole.inputs[0];
  std::vector<double> values = ElementValues(input);
  int64_t inner = 1;
  for (size_t i = axis + 1; i < input.shape.size(); ++i) inner *= input.shape[i];
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % input.shape[axis] != channel) values[i] = 0;
  }
  probe.inputs[0] = TensorOf(input.name, input.dtype, input.shape, values);
  return probe;
}

// The failed case on a small shape; nothing if it is small already or its shapes are tied.
std::optional<ValidateCase> SmallTwin(const ValidateSession& session, const ValidateCase& failed) {
  if (!FollowsFirstShape(session.options)) return std::nullopt;
  const std::vector<int64_t> shape = SmallShape(failed.inputs[0].shape);
  if (shape == failed.inputs[0].shape) return std::nullopt;
  const auto plan = PlanOperator(session.op, session.reference, session.options, {shape});
  if (!plan.ok()) return std::nullopt;
  return MakeCase(failed.name, *plan, session.options.seed);
}

std::string Sentence(const BreakPoint& found, const std::vector<int64_t>& wrong, int64_t channels,
                     const std::string& shape) {
  std::vector<int64_t> right;
  for (int64_t channel = 0, next = 0; channel < channels; ++channel) {
    if (next < static_cast<int64_t>(wrong.size()) && wrong[static_cast<size_t>(next)] == channel) {
      ++next;
    } else {
      right.push_back(channel);
    }
  }
  return absl::StrCat("breaks at input channel ", found.first, " (dim ", found.axis, " of ",
                      found.input, "): with only one channel not zero, channels ",
                      ChannelsText(wrong), " are computed wrong and ", ChannelsText(right),
                      " right (", channels, " probes of shape ", shape, ")");
}

// The case itself and one probe per channel, asked in one go. Nothing if the case does not fail.
std::optional<BreakPoint> ProbeChannels(const ValidateSession& session, const ValidateCase& test) {
  const proto::Tensor& input = test.inputs[0];
  BreakPoint found;
  found.input = input.name;
  found.axis = ChannelAxis(input.shape.size());
  const int64_t channels = input.shape[found.axis];
  if (channels < 2 || channels > kMostChannels_probed ||
      channels * input.ElementCount() > kMostElements_probed) {
    return std::nullopt;
  }
  std::vector<ValidateCase> probes = {test};
  for (int64_t channel = 0; channel < channels; ++channel) {
    probes.push_back(OnlyChannel(test, found.axis, channel));
  }
  const std::vector<CaseResult> results = RunCases(session, probes);
  if (results[0].state != CaseState::kFail) return std::nullopt;
  std::vector<int64_t> wrong;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const CaseResult& result = results[static_cast<size_t>(channel) + 1];
    if (!result.problem.ok()) return std::nullopt;
    if (result.state == CaseState::kFail) wrong.push_back(channel);
  }
  if (wrong.empty() || static_cast<int64_t>(wrong.size()) == channels) return std::nullopt;
  found.first = wrong.front();
  found.text = Sentence(found, wrong, channels, ShapeText(input.shape));
  return found;
}

}  // namespace

std::string ChannelsText(const std::vector<int64_t>& channels) {
  const size_t count = channels.size();
  if (count >= 3) {
    const int64_t step = channels[1] - channels[0];
    bool regular = true;
    for (size_t i = 2; i < count; ++i) regular &= channels[i] - channels[i - 1] == step;
    if (regular && step == 1) return absl::StrCat(channels.front(), "-", channels.back());
    if (regular) {
      return absl::StrCat("every ", step, "th from ", channels[0], " (", channels[0], ", ",
                          channels[1], ", ..., ", channels.back(), ")");
    }
  }
  // Runs.
  std::vector<std::string> runs;
  for (size_t i = 0; i < count;) {
    size_t end = i + 1;
    while (end < count && channels[end] == channels[end - 1] + 1) ++end;
    runs.push_back(end - i > 2 ? absl::StrCat(channels[i], "-", channels[end - 1])
                               : absl::StrJoin(channels.begin() + static_cast<long>(i),
                                               channels.begin() + static_cast<long>(end), ", "));
    i = end;
  }
  return absl::StrJoin(runs, ", ");
}

std::optional<BreakPoint> FindBreakPoint(const ValidateSession& session,
                                         const ValidateCase& failed) {
  const bool saved = session.op.command.empty() || session.reference.command.empty();
  if (saved || failed.inputs.empty() || failed.inputs[0].shape.size() < 2 ||
      !proto::IsFloating(failed.inputs[0].dtype)) {
    return std::nullopt;
  }
  if (const auto small = SmallTwin(session, failed)) {
    if (const auto found = ProbeChannels(session, *small)) return found;
  }
  return ProbeChannels(session, failed);
}

}  // namespace ops_debug::analysis
