// Merging, and the words (init_detector.h).
#include "analysis/init_detector.h"

#include <algorithm>

#include "analysis/finding_parts.h"

namespace ops_debug::analysis {
namespace {

bool IsEarlier(const proto::UninitialisedRead& a, const proto::UninitialisedRead& b) {
  const auto position = [](const proto::UninitialisedRead& read) {
    const proto::Dim3& block = read.block();
    const proto::Dim3& thread = read.thread();
    return std::tuple(read.launch().launch_id(), IsReplay(read.engine()), block.z(), block.y(),
                      block.x(), thread.z(), thread.y(), thread.x());
  };
  return position(a) < position(b);
}

// "decides a branch".
std::string UseWords(const std::string& use) {
  if (use == "branch") return "it decides a branch";
  if (use == "address") return "it becomes part of an address";
  if (use == "stored") return "it is stored as a result";
  if (use == "barrier") return "it is an operand of a barrier";
  if (use == "predicate") return "it decides whether an instruction is executed";
  if (use == "compared") return "an atomic operation compares it";
  if (use == "warp mask") return "it names the lanes that take part";
  if (use == "printed") return "it is printed";
  return "it is used (" + use + ")";
}

void SetMessage(const proto::UninitialisedRead& read, Finding& finding) {
  const uint32_t bytes = read.bytes() > 0 ? read.bytes() : finding.access_bytes;
  const std::string place = MemoryPlace(read.address(), finding.space, finding.allocation);
  std::string object = ByteCount(bytes) + " at " + place;
  if (finding.space == "shared" && finding.array) {
    object = ByteCount(bytes) + " of " + ShortVariable(finding.array->name) + " (" + place + ')';
  }
  finding.message = "block " + ToText(*finding.block) + " thread " + ToText(*finding.thread) +
                    " read " + object + " that ";
  if (finding.space == "shared") {
    finding.message += "no thread of the block has written";
  } else if (finding.space == "local") {
    finding.message += "the thread has not written";
  } else {
    finding.message += finding.allocation && finding.allocation->api.empty()
                           ? "nothing has written"
                           : "nothing has written since the memory was allocated";
  }
}

void SetAdvice(Finding& finding) {
  if (finding.space == "shared") {
    finding.advice =
        "shared memory begins with arbitrary contents: let the block write every element before "
        "the barrier in front of this read, or read only what was written";
  } else if (finding.space == "local") {
    finding.advice =
        "initialise the variable or array where it is declared; look for a path (a loop that ends "
        "early, an index that is one too far) on which the element is not written";
  } else {
    finding.advice =
        "new device memory holds whatever was there before: fill it (cudaMemset, zeros instead of "
        "empty), write it in the kernel before, or read only what was written (padding, tails)";
  }
}

}  // namespace

void InitDetector::Add(uint32_t process_id, const proto::UninitialisedRead& read) {
  const std::string key = std::to_string(read.site().space()) + '\0' +
                          PlaceKey(ToCodePlace(read.site(), read.launch().kernel()), read.site());
  const auto [found, is_new] = reads_.try_emplace({process_id, key});
  Merged& merged = found->second;
  if (is_new) merged.order = order_++;
  if (is_new || IsEarlier(read, merged.first)) merged.first = read;
  merged.count.Add(read.engine(), read.count());
}

std::vector<Finding> InitDetector::Finish() {
  std::vector<std::pair<size_t, Finding>> ordered;
  for (const auto& [key, merged] : reads_) {
    ordered.emplace_back(merged.order, MakeFinding(key.first, merged));
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Finding> findings;
  for (auto& [order, finding] : ordered) findings.push_back(std::move(finding));
  return findings;
}

Finding InitDetector::MakeFinding(uint32_t process_id, const Merged& merged) {
  const proto::UninitialisedRead& read = merged.first;
  Finding finding;
  finding.kind = "uninitialised-read";
  finding.process_id = process_id;
  SetPlace(ToCodePlace(read.site(), read.launch().kernel()), read.site(), finding);
  finding.engine = read.engine().empty() ? "ptx" : read.engine();
  finding.count = merged.count.Total();
  finding.count_is_lower_bound = merged.count.IsLowerBound();
  finding.block = ToExtent(read.block());
  finding.thread = ToExtent(read.thread());
  finding.address = read.address();
  if (read.has_allocation()) {
    finding.allocation = ToAllocation(read.allocation(), read.address(), read.bytes(), symbolizer_);
  }
  if (IsKnown(read.launch())) finding.launch = ToLaunch(read.launch(), symbolizer_);
  SetMessage(read, finding);
  SetAdvice(finding);
  if (!read.use().empty()) {
    finding.cause = read.use();
    finding.use = UseWords(read.use());
    if (read.has_use_site()) {
      const CodePlace place = ToCodePlace(read.use_site(), read.launch().kernel());
      const std::string at = ShortPlace(place.frames, read.use_site().ptx_line());
      if (!at.empty()) finding.use += " at " + at;
      if (!read.use_site().instruction().empty())
        finding.use += ": " + read.use_site().instruction();
      if (!place.frames.empty()) {
        finding.related.push_back({place.frames.front().file, place.frames.front().line,
                                   "the value matters here: " + UseWords(read.use())});
      }
    }
  }
  AddLaunchToRelated(finding);
  if (finding.allocation) AddRelated(*finding.allocation, finding.related);
  return finding;
}

}  // namespace ops_debug::analysis
