// A sentence has three parts: what the first did, what the second did to the same bytes, and why
// the order of the two is open. The advice names a place only if the reporter proved that a barrier
// there helps; otherwise it says what kind of order is missing.
#include "analysis/race_words.h"

#include <algorithm>
#include <array>

#include "analysis/demangle.h"
#include "analysis/finding_parts.h"

namespace ops_debug::analysis {
namespace {

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// ---- The sides

enum class Deed : uint8_t { kUsed, kRead, kWrote, kUpdated, kFreed };

// Operations say with an access kind what they did, or at least with their name.
Deed DeedOf(const AccessInfo& side, const AccessInfo& other) {
  if (!side.operation.empty() && Contains(side.operation, "Free")) return Deed::kFreed;
  if (side.access == "load") return Deed::kRead;
  if (side.access == "store") return Deed::kWrote;
  if (side.access == "atomic") return Deed::kUpdated;
  if (Contains(side.operation, "Memset") || Contains(side.operation, "HtoD")) return Deed::kWrote;
  if (Contains(side.operation, "DtoH")) return Deed::kRead;
  return other.access == "load" ? Deed::kWrote : Deed::kUsed;
}

std::string Verb(Deed deed) {
  switch (deed) {
    case Deed::kRead:
      return "read";
    case Deed::kWrote:
      return "wrote";
    case Deed::kUpdated:
      return "atomically updated";
    case Deed::kFreed:
      return "freed";
    case Deed::kUsed:
      break;
  }
  return "used";
}

bool SameLaunch(const AccessInfo& a, const AccessInfo& b) {
  return a.launch && b.launch && a.launch->number == b.launch->number && a.kernel == b.kernel;
}

bool SameBlock(const AccessInfo& a, const AccessInfo& b) {
  return SameLaunch(a, b) && a.block && b.block && *a.block == *b.block;
}

// "block (0,0,0) thread (3,0,0) of kernel copy in stream 2"; as far as `named` says it already,
// that is left out.
std::string Subject(const AccessInfo& side, const AccessInfo& other, const AccessInfo* named) {
  std::string text;
  if (!side.operation.empty()) {
    text = side.operation == "host function" ? "a host function" : side.operation;
  } else {
    const bool block_named = named != nullptr && SameBlock(side, *named);
    if (!side.thread) {
      text = block_named  ? "another thread of the block"
             : side.block ? "a thread of block " + ToText(*side.block)
                          : "a thread";
    } else if (block_named && named->thread && *named->thread == *side.thread) {
      text = "the same thread";
    } else {
      if (!block_named && side.block) text = "block " + ToText(*side.block) + ' ';
      text += "thread " + ToText(*side.thread);
    }
    if (!SameLaunch(side, other)) {
      text += " of kernel " + BareName(side.kernel);
      const bool alike = side.kernel == other.kernel && side.launch && side.launch->number > 0;
      if (alike) text += " (launch " + std::to_string(side.launch->number) + ')';
    }
  }
  if (!side.stream.empty() && (!SameLaunch(side, other) || !side.operation.empty())) {
    text += " in " + side.stream;
  }
  return text;
}

// "4 bytes of s (byte 12 of shared memory)".
std::string Object(const AccessInfo& side, const Finding& finding) {
  const std::string count = side.access_bytes > 0 ? ByteCount(side.access_bytes) : "memory";
  if (!side.address) return count;
  const std::string place = MemoryPlace(*side.address, finding.space, finding.allocation);
  if (finding.space == "shared" && finding.array) {
    return count + " of " + ShortVariable(finding.array->name) + " (" + place + ')';
  }
  return count + " at " + place;
}

// The second side's object, seen from the first's.
std::string ObjectAgain(const AccessInfo& side, const AccessInfo& first, const Finding& finding) {
  if (!side.address || !first.address || side.access_bytes == 0 || first.access_bytes == 0) {
    return Object(side, finding);
  }
  const uint64_t begin = *side.address, end = begin + side.access_bytes;
  const uint64_t first_begin = *first.address, first_end = first_begin + first.access_bytes;
  if (begin == first_begin && end == first_end) return "them";
  if (begin >= first_begin && end <= first_end) {
    return side.access_bytes == 1 ? "one of them" : std::to_string(side.access_bytes) + " of them";
  }
  return Object(side, finding);
}

std::string SemanticsSuffix(const AccessInfo& side) {
  return side.semantics.empty() || side.semantics == "weak" ? "" : " (" + side.semantics + ')';
}

std::string PlaceSuffix(const AccessInfo& side) {
  const std::string place = ShortPlace(side.frames, side.ptx_line);
  return place.empty() ? "" : " at " + place;
}

std::string FreedObject(const Finding& finding) {
  if (!finding.allocation) return "the memory";
  const AllocationInfo& allocation = *finding.allocation;
  if (allocation.tensor && !allocation.tensor->name.empty()) {
    return "tensor " + allocation.tensor->name;
  }
  return "allocation #" + std::to_string(allocation.id) + " (" + ByteCount(allocation.size_bytes) +
         ')';
}

// "block (0,0,0) thread (3,0,0) wrote 4 bytes of s (byte 12 of shared memory)".
std::string Clause(const AccessInfo& side, const AccessInfo& other, bool is_second,
                   const Finding& finding) {
  const Deed deed = DeedOf(side, other);
  std::string object;
  if (deed == Deed::kFreed) {
    object = FreedObject(finding);
  } else if (is_second && DeedOf(other, side) != Deed::kFreed) {
    object = ObjectAgain(side, other, finding);
  } else {
    object = Object(side, finding);
  }
  return Subject(side, other, is_second ? &other : nullptr) + ' ' + Verb(deed) + ' ' + object +
         SemanticsSuffix(side);
}

// The text that stands beside the side's own place.
std::string SideText(const AccessInfo& side, const AccessInfo& other, const Finding& finding) {
  std::string text = Clause(side, other, false, finding);
  if (!side.value.empty()) text += ", value " + side.value;
  return text;
}

// ---- The order

// " between line 41 and line 47"; " behind line 47 and before line 41 of the next iteration".
// Empty if the reporter knows no such place.
std::string RemedyPlace(const proto::Race& race, const Finding& finding) {
  if (!race.has_remedy_after() || !race.has_remedy_before()) return "";
  const proto::SourceFrame& after = race.remedy_after();
  const proto::SourceFrame& before = race.remedy_before();
  const std::string own = finding.frames.empty() ? "" : finding.frames.front().file;
  const auto line = [&own](const proto::SourceFrame& frame) {
    if (frame.file().empty() || frame.file() == own) return "line " + std::to_string(frame.line());
    return frame.file().substr(frame.file().rfind('/') + 1) + ':' + std::to_string(frame.line());
  };
  if (after.file() != before.file() || after.line() < before.line()) {
    return " between " + line(after) + " and " + line(before);
  }
  if (after.line() == before.line()) {
    return " behind " + line(after) + ", before it is executed again";
  }
  return " behind " + line(after) + ", before " + line(before) + " of the next iteration";
}

// The scope that the two sides synchronise at, as far as their semantics say: ".cta".
std::string ScopeOf(const Finding& finding) {
  for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"}) {  // the narrowest
    for (const AccessInfo& side : finding.accesses) {
      if (Contains(side.semantics, scope)) return scope;
    }
  }
  return "";
}

// The narrowest fence whose scope holds both sides.
std::string FenceOf(const Finding& finding) {
  const AccessInfo& first = finding.accesses[0];
  const AccessInfo& second = finding.accesses[1];
  if (!first.operation.empty() || !second.operation.empty()) return "__threadfence_system()";
  return SameBlock(first, second) ? "__threadfence_block()" : "__threadfence()";
}

// What the two threads do not have in common, and the scope that both are in.
struct Distance {
  const char* text;
  const char* remedy;
};
Distance DistanceOf(const Finding& finding) {
  const AccessInfo& first = finding.accesses[0];
  const AccessInfo& second = finding.accesses[1];
  if (!first.operation.empty() || !second.operation.empty()) {
    return {"one of them is on the host",
            "use system scope on both sides: __threadfence_system(), thread_scope_system, .sys"};
  }
  const bool other_block =
      first.block && second.block && !(*first.block == *second.block && SameLaunch(first, second));
  return {other_block ? "the threads are in different blocks" : "that does not hold both threads",
          "use device scope on both sides: __threadfence(), thread_scope_device, .gpu (not "
          "__threadfence_block(), thread_scope_block, .cta)"};
}

struct Words {
  std::string reason;  // why the order is open
  std::string advice;
};

Words BarrierWords(const std::string& reason, const std::string& barrier, const std::string& place,
                   const std::string& otherwise) {
  return {reason, place.empty() ? otherwise : "add " + barrier + place};
}

Words StreamWords(const Finding& finding) {
  const AccessInfo& first = finding.accesses[0];
  const AccessInfo& second = finding.accesses[1];
  const auto has = [&](const char* part) {
    return Contains(first.stream, part) || Contains(second.stream, part);
  };
  Words words;
  words.reason = "no event and no synchronisation orders the two streams";
  if (has("legacy default") && has("non-blocking")) {
    words.reason += ", and a non-blocking stream does not wait for the legacy default stream";
  }
  if (DeedOf(first, second) == Deed::kFreed || DeedOf(second, first) == Deed::kFreed) {
    words.advice =
        "free the memory in the stream that used it last, or let the freeing stream wait for an "
        "event recorded behind the last use (cudaEventRecord, cudaStreamWaitEvent; PyTorch: "
        "tensor.record_stream(stream))";
    return words;
  }
  words.advice =
      "record an event behind the first and let the second's stream wait for it "
      "(cudaEventRecord, cudaStreamWaitEvent), or submit both to one stream";
  return words;
}

Words OrderWords(const proto::Race& race, const Finding& finding) {
  const std::string place = RemedyPlace(race, finding);
  switch (race.missing()) {
    case proto::MISSING_ORDER_BLOCK_BARRIER:
      return BarrierWords("nothing orders the two", "__syncthreads()", place,
                          "let all threads of the block meet at a barrier (__syncthreads()) "
                          "between the two accesses");
    case proto::MISSING_ORDER_WARP_BARRIER:
      return BarrierWords(
          "lanes of one warp are not ordered without a warp barrier (independent thread "
          "scheduling)",
          "__syncwarp()", place,
          "let the lanes meet at __syncwarp() (with the mask of those that get there) between the "
          "two accesses; a shuffle or vote orders no memory");
    case proto::MISSING_ORDER_CLUSTER_BARRIER:
      return BarrierWords("blocks of a cluster are ordered by cluster barriers only",
                          "cluster.sync() (barrier.cluster.arrive and .wait)", place,
                          "let all blocks of the cluster meet at cluster.sync() "
                          "(barrier.cluster.arrive and .wait) between the two accesses");
    case proto::MISSING_ORDER_GRID_BARRIER:
      return BarrierWords(
          "blocks of one launch run in any order",
          "a grid barrier (cooperative launch, cooperative_groups grid.sync())", place,
          "split the kernel into two launches, use a grid barrier (cooperative launch, "
          "cooperative_groups grid.sync()), or hand the data over by a flag that is released and "
          "acquired at device scope");
    case proto::MISSING_ORDER_ATOMIC: {
      const bool one_atomic =
          (finding.accesses[0].access == "atomic") != (finding.accesses[1].access == "atomic");
      if (one_atomic) {
        return {"an atomic does not protect the bytes against an ordinary access",
                "make the other access atomic too (atomicExch, atomicAdd, cuda::atomic_ref), or "
                "order it by a barrier"};
      }
      return {
          "each thread reads, changes and writes back without an atomic, so updates are lost",
          "use an atomic (atomicAdd, or a loop of compare-and-swap), or reduce the values first "
          "and let one thread write"};
    }
    case proto::MISSING_ORDER_ACQUIRE:
      return {
          "the writer releases, but the reader does not acquire: it may read older values",
          "put " + FenceOf(finding) +
              " behind the reader's look at the flag or ticket and before it "
              "reads the data, or load the flag with acquire order (cuda::memory_order_acquire, "
              "ld.acquire)"};
    case proto::MISSING_ORDER_RELEASE:
      return {
          "the reader acquires, but the writer does not release: the flag may be seen before the "
          "data",
          "put " + FenceOf(finding) +
              " behind the writes of the data and before the flag is set, or store the flag with "
              "release order (cuda::memory_order_release, st.release)"};
    case proto::MISSING_ORDER_SCOPE: {
      const std::string scope = ScopeOf(finding);
      const Distance distance = DistanceOf(finding);
      return {"the two synchronise at " + (scope.empty() ? "too narrow a" : scope) +
                  " scope, but " + distance.text,
              distance.remedy};
    }
    case proto::MISSING_ORDER_COPY_WAIT:
      return BarrierWords(
          "the asynchronous copy is not waited for",
          "a wait for the copy (cp.async.wait_group, __pipeline_wait_prior) and a barrier behind "
          "it,",
          place,
          "wait for the copy (cp.async.wait_group or cp.async.wait_all, __pipeline_wait_prior) and "
          "let the block meet at a barrier behind that: a barrier alone waits for no copy");
    case proto::MISSING_ORDER_MBARRIER_WAIT:
      return BarrierWords(
          "the phase of the mbarrier that completes with the copy is not waited for",
          "a wait for that phase (mbarrier.try_wait in a loop, barrier.wait())", place,
          "wait for that phase of the mbarrier (mbarrier.try_wait in a loop, "
          "barrier.wait()) before the bytes are touched");
    case proto::MISSING_ORDER_PROXY_FENCE:
      return BarrierWords(
          "one access goes through the async proxy, the other does not, and no proxy fence stands "
          "between them",
          "fence.proxy.async (cuda::ptx::fence_proxy_async)", place,
          "put fence.proxy.async (cuda::ptx::fence_proxy_async) behind the ordinary accesses, "
          "before the barrier or the copy that follows them");
    case proto::MISSING_ORDER_GRID_DEPENDENCY:
      return {
          "the second kernel may start before the first has ended (programmatic dependent "
          "launch) and does not wait for it",
          "call cudaGridDependencySynchronize() (griddepcontrol.wait) before the first access "
          "to what the kernel before it writes or reads"};
    case proto::MISSING_ORDER_EVENT:
      return StreamWords(finding);
    case proto::MISSING_ORDER_HOST_SYNC:
      return {
          "nothing makes the host wait for the device in between",
          "synchronise before the host touches the memory (cudaStreamSynchronize, "
          "cudaEventSynchronize), and keep buffers of asynchronous copies until these are done"};
    case proto::MISSING_ORDER_WGMMA_WAIT:
      return BarrierWords("the matrix instruction may still be using its operands",
                          "wgmma.wait_group (after wgmma.commit_group)", place,
                          "wait for the group (wgmma.commit_group, wgmma.wait_group) before its "
                          "operands are touched");
    default:
      break;
  }
  return {"nothing orders the two",
          "order the two accesses by a barrier, by atomics or by a flag that is released and "
          "acquired"};
}

// ---- Misuse of atomics

struct Pattern {
  const char* name;
  const char* reason;
  const char* advice;
};
constexpr std::array<Pattern, 5> kPatterns = {{
    {"read-modify-write without atomics",
     "each thread reads, changes and writes back without an atomic, so updates are lost",
     "use an atomic (atomicAdd, or a loop of compare-and-swap), or reduce the values first and let "
     "one thread write"},
    {"float maximum by integer atomic",
     "an integer atomic compares the bits of floats: negative values come out in the wrong order",
     "compare the floats in a loop of compare-and-swap, or use atomicMax on int for values from 0 "
     "on and atomicMin on unsigned int for negative ones"},
    {"mixed scopes", "the scope of one of the atomics does not hold the thread of the other",
     "give all atomics of this memory the scope that holds every thread that uses it (atomicAdd() "
     "has device scope, atomicAdd_block() that of the block)"},
    {"ticket without acquire",
     "the block that draws the last ticket reads what the others wrote without an acquire behind "
     "its atomic: it may read older values",
     "put __threadfence() behind the atomic and before the data is read, or draw the ticket with "
     "acquire-release order (cuda::atomic_ref::fetch_add)"},
    {"atomic and plain access", "an atomic does not protect the bytes against an ordinary access",
     "make the other access atomic too (atomicExch, atomicAdd, cuda::atomic_ref), or order it by a "
     "barrier"},
}};

Words PatternWords(const proto::Race& race, const Finding& finding) {
  for (const Pattern& pattern : kPatterns) {
    if (race.pattern() == pattern.name) return {pattern.reason, pattern.advice};
  }
  Words words = OrderWords(race, finding);
  if (!race.pattern().empty()) words.reason = race.pattern();
  return words;
}

// "*sum = *sum + 1" reads and writes on one line; whether what is written depends on what was read
// is not known here.
bool LooksLikeUpdate(const proto::Race& race, const Finding& finding) {
  const AccessInfo& first = finding.accesses[0];
  const AccessInfo& second = finding.accesses[1];
  const bool barrier = race.missing() == proto::MISSING_ORDER_BLOCK_BARRIER ||
                       race.missing() == proto::MISSING_ORDER_WARP_BARRIER ||
                       race.missing() == proto::MISSING_ORDER_GRID_BARRIER;
  const bool reads_and_writes = (first.access == "load" && second.access == "store") ||
                                (first.access == "store" && second.access == "load");
  return race.kind() != proto::Race::KIND_ATOMICS && barrier && reads_and_writes &&
         !first.frames.empty() && !second.frames.empty() && first.kernel == second.kernel &&
         first.frames.front().file == second.frames.front().file &&
         first.frames.front().line == second.frames.front().line;
}

const char* KindName(const proto::Race& race) {
  switch (race.kind()) {
    case proto::Race::KIND_WARP:
      return "missing-warp-sync";
    case proto::Race::KIND_STREAM:
      return "stream-race";
    case proto::Race::KIND_ATOMICS:
      return "atomics-misuse";
    case proto::Race::KIND_SHARED:
      return "race-shared";
    case proto::Race::KIND_GLOBAL:
      return "race-global";
    default:
      return race.space() == proto::ADDRESS_SPACE_SHARED ? "race-shared" : "race-global";
  }
}

}  // namespace

const char* MissingOrderName(proto::MissingOrder missing) {
  constexpr std::array<const char*, 16> kNames = {"",
                                                  "block-barrier",
                                                  "warp-barrier",
                                                  "cluster-barrier",
                                                  "grid-barrier",
                                                  "atomic",
                                                  "acquire",
                                                  "release",
                                                  "scope",
                                                  "copy-wait",
                                                  "mbarrier-wait",
                                                  "proxy-fence",
                                                  "grid-dependency",
                                                  "event",
                                                  "host-sync",
                                                  "wgmma-wait"};
  const auto index = static_cast<size_t>(missing);
  return missing >= 0 && index < kNames.size() ? kNames[index] : "";
}

void DescribeRace(const proto::Race& race, Finding& finding) {
  finding.kind = KindName(race);
  finding.cause = race.pattern().empty() ? MissingOrderName(race.missing()) : race.pattern();
  AccessInfo& first = finding.accesses[0];
  AccessInfo& second = finding.accesses[1];
  first.text = SideText(first, second, finding);
  second.text = SideText(second, first, finding);
  finding.message = Clause(first, second, false, finding) + PlaceSuffix(first) + "; " +
                    Clause(second, first, true, finding) + PlaceSuffix(second);
  const Words words = race.kind() == proto::Race::KIND_ATOMICS ? PatternWords(race, finding)
                                                               : OrderWords(race, finding);
  if (race.same_value()) {
    finding.severity = Severity::kNote;
    finding.message = "benign: both write the same value: " + finding.message;
    finding.advice =
        "harmless as long as the values are always the same; to be sure, let one thread write";
    return;
  }
  finding.message += "; " + words.reason;
  finding.advice = words.advice;
  if (LooksLikeUpdate(race, finding)) {
    finding.advice +=
        "; if the line updates a value in place, use an atomic (atomicAdd, or a loop of "
        "compare-and-swap)";
  }
  if (!race.unproven()) return;
  finding.severity = Severity::kWarning;
  finding.reason = race.reason().empty() ? "the order of the two is not known" : race.reason();
  finding.advice = "if it is a race: " + finding.advice;
  if (race.engine() != "emulator") {
    finding.advice += "; the emulator decides it exactly (--device emulator, without --engine)";
  }
}

}  // namespace ops_debug::analysis
