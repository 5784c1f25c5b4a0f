// Merging in two steps: by what the message says, which needs no symbols, then by lines
// (race_detector.h).
#include "analysis/race_detector.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "analysis/demangle.h"
#include "analysis/finding_parts.h"
#include "analysis/race_words.h"
#include "analysis/value_text.h"

namespace ops_debug::analysis {
namespace {

void AddSide(const proto::Access& access, std::string& key) {
  const auto add = [&key](const std::string& text) { key.append(text).push_back('\0'); };
  add(access.launch().kernel());
  add(access.site().function());
  add(std::to_string(access.site().access()));
  for (const proto::SourceFrame& frame : access.site().frames()) {
    add(frame.file() + ':' + std::to_string(frame.line()));
  }
  if (access.site().frames().empty()) {
    add(std::to_string(access.site().ptx_line()) + ' ' + access.site().instruction());
  }
  add(access.operation());
  for (const proto::StackFrame& frame : access.stack().frames()) {
    add(frame.module() + '+' + std::to_string(frame.offset()));
  }
  for (const proto::PythonFrame& frame : access.python_stack()) {
    add(frame.file() + ':' + std::to_string(frame.line()));
  }
}

void AddShapes(const proto::Race& race, std::string& key) {
  key += race.engine() + (race.first().launch().launch_id() == race.second().launch().launch_id()
                              ? "\1one\1"
                              : "\1two\1");
  key += std::to_string(race.module_id());
  for (const proto::Access* side : {&race.first(), &race.second()}) {
    const proto::Launch& launch = side->launch();
    for (const proto::Dim3* size : {&launch.grid(), &launch.block()}) {
      key += ' ' + std::to_string(size->x()) + ' ' + std::to_string(size->y()) + ' ' +
             std::to_string(size->z());
    }
    key += ' ' + std::to_string(launch.dynamic_shared_bytes());
  }
}

std::string MessageKey(const proto::Race& race) {
  std::string sides[2];
  AddSide(race.first(), sides[0]);
  AddSide(race.second(), sides[1]);
  std::sort(std::begin(sides), std::end(sides));
  std::string key = std::to_string(race.kind()) + (race.unproven() ? 'u' : 'p') +
                    (race.same_value() ? 'b' : 'r') + race.pattern() + '\0' + sides[0] + '\1' +
                    sides[1];
  // Whether it is decided elsewhere depends on the shape of the launches.
  if (race.unproven()) AddShapes(race, key);
  return key;
}

// A race has happened when its second access has.
uint64_t LaunchOf(const proto::Race& race) {
  return std::max(race.first().launch().launch_id(), race.second().launch().launch_id());
}

// ---- One bug, one finding

std::string SideKey(const AccessInfo& side) {
  std::string key = side.kernel + '\0' + side.function + '\0' + side.operation + '\0';
  AddToKey(side.frames, key);
  if (side.operation.empty()) {
    if (side.frames.empty()) key += std::to_string(side.ptx_line) + ' ' + side.instruction;
    return key;
  }
  AddToKey(side.stack, side.python_stack, key);
  return key;
}

struct Candidate {
  Finding finding;
  size_t order = 0;
  std::set<std::string> places;  // of both sides
  bool unproven = false;
  bool benign() const { return finding.severity == Severity::kNote; }
  bool proven() const { return !unproven && !benign(); }
};

// True if an author who knows of `main` learns nothing new from `other`.
bool Explains(const Candidate& main, const Candidate& other) {
  if (main.finding.process_id != other.finding.process_id) return false;
  if (!main.proven() && main.unproven != other.unproven) return false;
  if (!main.proven() && main.benign() != other.benign()) return false;
  const std::string& kind = main.finding.kind;
  const std::string& other_kind = other.finding.kind;
  if (kind == "atomics-misuse" && other_kind != kind && other_kind != "stream-race") {
    return std::includes(main.places.begin(), main.places.end(), other.places.begin(),
                         other.places.end());
  }
  if (main.places != other.places) return false;
  const bool wider =
      other_kind == "missing-warp-sync" && (kind == "race-shared" || kind == "race-global");
  return kind == other_kind || wider;
}

bool SpeaksBefore(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& candidate) {
    const std::string& kind = candidate.finding.kind;
    const int strength = candidate.proven() ? 0 : candidate.unproven ? 1 : 2;
    const int width = kind == "atomics-misuse" ? 0 : kind == "missing-warp-sync" ? 2 : 1;
    // "read, then overwritten" explains an update better than "overwritten" does.
    const bool reads =
        std::any_of(candidate.finding.accesses.begin(), candidate.finding.accesses.end(),
                    [](const AccessInfo& side) { return side.access == "load"; });
    return std::tuple(strength, width, width == 0 && !reads);
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  return a.order < b.order;
}

// Merges what one bug shows as; the result is in the order in which it first happened.
std::vector<Candidate> OnePerBug(std::vector<Candidate> candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), SpeaksBefore);
  std::vector<Candidate> kept;
  for (Candidate& candidate : candidates) {
    const auto main = std::find_if(kept.begin(), kept.end(), [&candidate](const Candidate& other) {
      return Explains(other, candidate);
    });
    if (main == kept.end()) {
      kept.push_back(std::move(candidate));
      continue;
    }
    main->order = std::min(main->order, candidate.order);
    if (main->unproven == candidate.unproven && main->benign() == candidate.benign()) {
      main->finding.count += candidate.finding.count;
      main->finding.count_is_lower_bound |= candidate.finding.count_is_lower_bound;
    }
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Candidate& a, const Candidate& b) { return a.order < b.order; });
  return kept;
}

// The finding stands at a kernel's access, if one of the two is one.
// Returns its index.
size_t SetMainPlace(const proto::Race& race, Finding& finding) {
  const bool second = finding.accesses[0].kernel.empty() && !finding.accesses[1].kernel.empty();
  const proto::Access& access = second ? race.second() : race.first();
  const AccessInfo& side = finding.accesses[second ? 1 : 0];
  const std::string space = finding.space;
  SetPlace({side.kernel, side.function, side.frames, side.toolkit_frames}, access.site(), finding);
  finding.space = space;
  finding.block = side.block;
  finding.thread = side.thread;
  finding.launch = side.launch;
  return second ? 1 : 0;
}

void AddSideToRelated(const AccessInfo& side, Finding& finding) {
  if (!side.frames.empty()) {
    finding.related.push_back({side.frames.front().file, side.frames.front().line, side.text});
  } else if (!side.operation.empty()) {
    AddRelated(side.stack, side.python_stack, side.text, finding.related);
  }
}

}  // namespace

void RaceDetector::Add(uint32_t process_id, const proto::Race& race) {
  const auto [found, is_new] = races_.try_emplace({process_id, MessageKey(race)});
  Merged& merged = found->second;
  if (is_new) merged.order = order_++;
  const auto when = [](const proto::Race& one) {
    return std::pair(LaunchOf(one), IsReplay(one.engine()));
  };
  if (is_new || when(race) < when(merged.first)) merged.first = race;
  merged.count.Add(race.engine(), race.count());
}

RaceDetector::Findings RaceDetector::Finish(const IsDecided& is_decided) {
  Findings findings;
  std::vector<Candidate> candidates;
  for (const auto& [key, merged] : races_) {
    if (is_decided && merged.first.unproven() && is_decided(key.first, merged.first)) {
      ++findings.decided;
      continue;
    }
    Candidate candidate{MakeFinding(key.first, merged), merged.order, {}, merged.first.unproven()};
    for (const AccessInfo& side : candidate.finding.accesses) {
      candidate.places.insert(SideKey(side));
    }
    candidates.push_back(std::move(candidate));
  }
  for (Candidate& candidate : OnePerBug(std::move(candidates))) {
    (candidate.unproven ? findings.unproven : findings.proven)
        .push_back(std::move(candidate.finding));
  }
  return findings;
}

AccessInfo RaceDetector::MakeAccess(const proto::Access& access) {
  AccessInfo info;
  const proto::Site& site = access.site();
  const bool of_kernel = access.operation().empty();
  if (of_kernel) {
    CodePlace place = ToCodePlace(site, access.launch().kernel());
    info.kernel = std::move(place.kernel);
    info.function = std::move(place.function);
    info.frames = std::move(place.frames);
    info.toolkit_frames = std::move(place.toolkit_frames);
    info.instruction = site.instruction();
    info.ptx_line = site.ptx_line();
    info.block = ToExtent(access.block());
    if (!access.thread_unknown()) info.thread = ToExtent(access.thread());
    if (IsKnown(access.launch())) info.launch = ToLaunch(access.launch(), symbolizer_);
  } else {
    info.operation = access.operation();
    info.stack = symbolizer_.Resolve(access.stack());
    info.python_stack = ToPythonStack(access.python_stack());
  }
  info.access = AccessName(site.access());
  info.space = SpaceName(site.space());
  if (access.bytes() > 0) info.address = access.address();
  info.access_bytes = access.bytes();
  info.value = ValueText(access.value(), site.instruction());
  info.semantics = access.semantics();
  if (access.has_stream()) {
    info.stream = !access.stream().name().empty()
                      ? access.stream().name()
                      : "stream " + std::to_string(access.stream().number());
  }
  return info;
}

Finding RaceDetector::MakeFinding(uint32_t process_id, const Merged& merged) {
  const proto::Race& race = merged.first;
  Finding finding;
  finding.process_id = process_id;
  finding.engine = race.engine().empty() ? "ptx" : race.engine();
  finding.count = merged.count.Total();
  finding.count_is_lower_bound = merged.count.IsLowerBound();
  finding.accesses = {MakeAccess(race.first()), MakeAccess(race.second())};
  finding.space = SpaceName(race.space());
  if (finding.space.empty() && race.kind() == proto::Race::KIND_SHARED) finding.space = "shared";
  const size_t main = SetMainPlace(race, finding);
  finding.address = race.address();
  if (race.has_allocation()) {
    finding.allocation = ToAllocation(race.allocation(), race.address(), race.bytes(), symbolizer_);
  }
  // Of shared memory, either side may know the array.
  for (const proto::Access* side : {&race.first(), &race.second()}) {
    if (!finding.array && !side->site().variable().empty()) {
      finding.array = ArrayInfo{Demangle(side->site().variable()), side->site().variable_bytes()};
    }
  }
  DescribeRace(race, finding);
  AddSideToRelated(finding.accesses[1 - main], finding);
  AddLaunchToRelated(finding);
  if (finding.allocation) AddRelated(*finding.allocation, finding.related);
  return finding;
}

}  // namespace ops_debug::analysis
