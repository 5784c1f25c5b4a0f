// A leak is an allocation that is still live when its context or the process ends. Not counted are
// module variables (the module's), what another process allocated, and host memory that was only
// registered. Pools of frameworks keep their segments to the end by design: each pool is one note,
// which lists the tensors that are still alive.
#include "interposer/leak_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/fault_event.h"
#include "interposer/python_stack.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::AllocationKind;
using shadow::PoolBlock;

constexpr size_t kMostLeaks = 10000;
constexpr size_t kMostTensorsShown = 5;

bool MayLeak(const Allocation& allocation) {
  switch (allocation.kind) {
    case AllocationKind::kDevice:
    case AllocationKind::kStreamOrdered:
    case AllocationKind::kMapped:
      return true;
    case AllocationKind::kHost:
      return std::string_view(allocation.api) != "cuMemHostRegister";
    case AllocationKind::kModuleVariable:
    case AllocationKind::kImported:
      return false;
  }
  return false;
}

struct PoolSum {
  size_t segments = 0;
  uint64_t segment_bytes = 0;
  size_t blocks = 0;
  uint64_t block_bytes = 0;
};

// "float32 [1024, 1024], 4194304 bytes, train.py:12".
std::string DescribeBlock(const PoolBlock& block) {
  std::string text;
  const shadow::TensorInfo& tensor = block.tensor;
  if (tensor.has_shape) {
    text = std::string(tensor.dtype) + " [";
    for (uint32_t i = 0; i < tensor.rank && i < shadow::TensorInfo::kMaxRank; i++)
      text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
    text += "], ";
  }
  text += std::to_string(block.size_bytes) + " bytes";
  PythonStackHandle handle;
  handle.count = std::min(tensor.allocation_lines.count, PythonStackHandle::kMaxFrames);
  std::copy_n(tensor.allocation_lines.numbers.begin(), handle.count, handle.lines.begin());
  const PythonStack stack = ResolvePythonStack(handle);
  if (!stack.empty()) {
    const std::string& file = stack.front().file;
    text += ", " + file.substr(file.rfind('/') + 1) + ":" + std::to_string(stack.front().line);
  }
  return text;
}

void ReportPools(const std::vector<Allocation>& segments, std::vector<PoolBlock> blocks) {
  std::map<std::string, PoolSum> pools;
  std::map<uint64_t, std::string> pool_of_segment;
  for (const PoolBlock& block : blocks) pool_of_segment[block.segment_base] = block.api;
  // A segment without a live block is as likely of the one pool that there is.
  const std::string usual = blocks.empty() ? "a framework's memory pool" : blocks.front().api;
  for (const Allocation& segment : segments) {
    const auto known = pool_of_segment.find(segment.base);
    PoolSum& sum = pools[known == pool_of_segment.end() ? usual : known->second];
    sum.segments++;
    sum.segment_bytes += segment.size_bytes;
  }
  std::ranges::sort(blocks, std::greater(), &PoolBlock::size_bytes);
  for (auto& [name, sum] : pools) {
    std::string largest;
    for (const PoolBlock& block : blocks) {
      if (block.api != name) continue;
      if (sum.blocks++ < kMostTensorsShown)
        largest += (largest.empty() ? "" : "; ") + DescribeBlock(block);
      sum.block_bytes += block.size_bytes;
    }
    DiagnosticEvent event;
    event.text = name + " still holds " + std::to_string(sum.segment_bytes) + " bytes in " +
                 std::to_string(sum.segments) + (sum.segments == 1 ? " segment, " : " segments, ") +
                 std::to_string(sum.blocks) + (sum.blocks == 1 ? " block" : " blocks") +
                 " in use (" + std::to_string(sum.block_bytes) + " bytes)";
    if (!largest.empty())
      event.text += ": " + largest + (sum.blocks > kMostTensorsShown ? "; …" : "");
    event.hint =
        "a pool gives its memory back when the process ends; tensors that should be gone "
        "are still referenced";
    Send(event);
  }
}

void Report(CUcontext context) {
  std::vector<Allocation> live = Book().Live(), segments;
  if (context) std::erase_if(live, [&](const Allocation& each) { return each.context != context; });
  size_t told = 0, more = 0;
  uint64_t more_bytes = 0;
  for (const Allocation& allocation : live) {
    if (!MayLeak(allocation)) continue;
    if (allocation.pool) {
      segments.push_back(allocation);
    } else if (told < kMostLeaks) {
      told++;
      Send(LeakEvent{.allocation = Describe(allocation)});
    } else {
      more++;
      more_bytes += allocation.size_bytes;
    }
  }
  if (more != 0) {
    Send(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                         .text = std::to_string(more) + " more allocations were never freed (" +
                                 std::to_string(more_bytes) + " bytes); " +
                                 std::to_string(kMostLeaks) + " are listed"});
  }
  if (segments.empty()) return;
  std::vector<PoolBlock> blocks = Book().LiveBlocks();
  if (context)
    std::erase_if(blocks, [&](const PoolBlock& each) { return each.context != context; });
  ReportPools(segments, std::move(blocks));
}

}  // namespace

void ReportLeaks(CUcontext context) noexcept {
  if (!Options().leak_check || !ChecksAnything()) return;
  try {
    Report(context);
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to report leaks"});
  }
}

}  // namespace ops_debug::interposer
