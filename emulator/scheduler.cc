// Who runs next: splits within a warp, warps within a block, blocks on a host thread.
//
// Within a warp the deepest call and then the lowest program counter goes first, which reconverges
// (layout.cc). A split that has used up its credit of backward jumps may be waiting for lanes that
// the order keeps back, so then the one that has rested longest runs: diverged lanes always make
// progress (the guarantee of Volta and later). Warps and blocks give way for the same reason: a
// block that seems to wait for another one lets its host thread start the next.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "emulator/fault_text.h"
#include "emulator/machine.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {
namespace {

constexpr size_t kMappedBytes = 1 << 20;
constexpr int64_t kCredit = 1 << 20;
constexpr int64_t kLimitedCredit = 1 << 10;  // in launches with an instruction limit
constexpr int64_t kObservedCredit = 1 << 18;
// A block that yields this often in a row without any sign of waiting is taken to wait after all.
constexpr uint32_t kIdleYields = 64;

}  // namespace

// Large buffers (stacks for recursion) come as untouched pages, which cost nothing until they are
// used.
LaneBuffer::LaneBuffer(size_t size_bytes) : size_bytes_(size_bytes) {
  const size_t wanted = std::max<size_t>(size_bytes, 1);
  if (wanted >= kMappedBytes) {
    void* pages = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(pages);
    return;
  }
  data_ = static_cast<std::byte*>(::operator new (wanted, std::align_val_t{kLaneArrayAlignment}));
  std::memset(data_, 0, wanted);
}
LaneBuffer::~LaneBuffer() {
  if (data_ != nullptr && size_bytes_ >= kMappedBytes) {
    munmap(data_, size_bytes_);
  } else {
    ::operator delete (data_, std::align_val_t{kLaneArrayAlignment});
  }
}

Block::Block(const Launch& l, uint32_t warp_count)
    : launch(&l),
      shared(l.shared_limit_bytes),
      local(l.local_stride_bytes * kWarpLanes * warp_count) {
  for (Barrier& barrier : barriers) barrier.arrived.assign(warp_count, 0);
  for (uint32_t i = 0; i < warp_count; ++i) {
    auto warp = std::make_unique<Warp>();
    warp->block = this;
    warp->index = i;
    warp->local = local.data() + l.local_stride_bytes * kWarpLanes * i;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t thread = i * kWarpLanes + lane;
      if (thread < l.threads_per_block) warp->exists |= 1u << lane;
      warp->thread_index[0][lane] = thread % l.block.x;
      warp->thread_index[1][lane] = thread / l.block.x % l.block.y;
      warp->thread_index[2][lane] = thread / l.block.x / l.block.y;
    }
    warps.push_back(std::move(warp));
  }
}

Machine::Machine(Launch& launch)
    : launch_(launch), lanes_(*launch.lanes), scratch_(kWarpLanes * sizeof(uint64_t)) {}

Frame* Machine::TakeFrame(const Function& function) {
  std::vector<Frame*>& free = free_frames_[&function];
  if (free.empty()) {
    frames_.push_back(std::make_unique<Frame>(function));
    return frames_.back().get();
  }
  Frame* const frame = free.back();
  free.pop_back();
  return frame;
}

void Machine::ReleaseLanes(Frame* frame, uint32_t lanes) {
  frame->live &= ~lanes;
  if (frame->live == 0) free_frames_[frame->function].push_back(frame);
}

void Machine::DropLanes(Frame* frame, uint32_t lanes) {
  while (frame != nullptr) {
    Frame* const parent = frame->parent;
    ReleaseLanes(frame, lanes);
    frame = parent;
  }
}

Split& Machine::AddSplit(Warp& warp, const Split& like, uint32_t lanes, uint32_t pc) {
  Split& split = warp.splits[warp.split_count++];
  split = like;
  split.lanes = lanes;
  split.pc = pc;
  split.state = Split::State::kReady;
  return split;
}

void Machine::RemoveSplit(Warp& warp, Split& split) {
  Split& last = warp.splits[--warp.split_count];
  if (&split != &last) split = last;
}

void Machine::KeepLanes(Warp& warp, Split& split, uint32_t lanes, uint32_t pc) {
  const uint32_t others = split.lanes & ~lanes;
  if (others == 0) return;
  AddSplit(warp, split, others, pc + 1);
  split.lanes = lanes;
}

void Machine::MergeSplits(Warp& warp) {
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    Split& a = warp.splits[i];
    if (a.state != Split::State::kReady) continue;
    for (uint32_t j = i + 1; j < warp.split_count;) {
      Split& b = warp.splits[j];
      if (b.state == Split::State::kReady && b.pc == a.pc && b.frame == a.frame) {
        a.lanes |= b.lanes;
        a.last_run = std::max(a.last_run, b.last_run);
        RemoveSplit(warp, b);
      } else {
        ++j;
      }
    }
  }
}

int Machine::PickByPlace(const Warp& warp) {
  int best = -1;
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    if (split.state != Split::State::kReady) continue;
    if (best >= 0) {
      const Split& other = warp.splits[best];
      if (split.frame->depth < other.frame->depth) continue;
      if (split.frame->depth == other.frame->depth && split.pc >= other.pc) continue;
    }
    best = static_cast<int>(i);
  }
  return best;
}

int Machine::PickByAge(const Warp& warp) {
  int best = -1;
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    if (split.state != Split::State::kReady) continue;
    if (best < 0 || split.last_run < warp.splits[best].last_run) best = static_cast<int>(i);
  }
  return best;
}

// The program counter at which `split` would catch up with another one.
uint32_t Machine::NextMeeting(const Warp& warp, const Split& split) {
  uint32_t meeting = ~0u;
  if (warp.split_count == 1) return meeting;
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& other = warp.splits[i];
    if (other.frame == split.frame && other.state == Split::State::kReady && other.pc > split.pc) {
      meeting = std::min(meeting, other.pc);
    }
  }
  return meeting;
}

bool Machine::HasReady(const Warp& warp) {
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    if (warp.splits[i].state == Split::State::kReady) return true;
  }
  return false;
}

bool Machine::Wake(Warp& warp) {
  bool waiting = false;
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    Split& split = warp.splits[i];
    if (split.state != Split::State::kWaiting) continue;
    const Instruction& in = split.frame->function->code[split.pc];
    if (in.fn.extended->Ready(*this, warp, split)) {
      split.state = Split::State::kReady;
    } else {
      waiting = true;
    }
  }
  return waiting;
}

Machine::Stop Machine::RunWarp(Warp& warp) {
  uint32_t yields = 0;
  bool by_age = false;
  // Kept from step to step: a loop that diverges in every round would else never give way.
  const auto refill_credit = [this] {
    credit_ = observing_ ? kObservedCredit : kCredit;
    if (launch_.instruction_limit != 0) credit_ = std::min(credit_, kLimitedCredit);
  };
  refill_credit();
  slice_ = INT64_MAX;
  for (;;) {
    if (warp.split_count == 0) return Stop::kFinished;
    if (warp.split_count > 1) MergeSplits(warp);
    const int pick = by_age ? PickByAge(warp) : PickByPlace(warp);
    if (pick < 0) return Stop::kBlocked;
    by_age = false;
    Split& split = warp.splits[pick];
    const uint64_t before = warp.instructions;
    const Stop stop =
        CountTowardsLimit(warp, before,
                          observing_ || launch_.checks != nullptr ? Execute<true>(warp, split)
                                                                  : Execute<false>(warp, split));
    if (stop == Stop::kFault) {
      fault_.warp = warp.index;
      return stop;
    }
    if (stop != Stop::kYield) continue;
    split.last_run = ++clock_;
    if (++yields >= warp.split_count) return Stop::kYield;
    by_age = true;
    refill_credit();
  }
}

Machine::Stop Machine::CountTowardsLimit(Warp& warp, uint64_t before, Stop stop) {
  if (launch_.instruction_limit == 0) return stop;
  // A step that lets no lane go on counts as well, so that a launch ends in any case.
  executed_ += std::max<uint64_t>(warp.instructions - before, 1);
  if (executed_ <= launch_.instruction_limit || stop == Stop::kFault) return stop;
  fault_.code = LaunchError::Code::kInstructionLimit;
  fault_.has_place = false;
  fault_.warp = warp.index;
  fault_.text = "more than " + std::to_string(launch_.instruction_limit) + " thread-instructions";
  return Stop::kFault;
}

Machine::Stop Machine::RunBlock(Block& block) {
  for (;;) {
    bool progress = false;
    bool any_ready = false;
    bool waiting = false;  // for something that another block may do
    bool spinning = false;
    uint32_t finished = 0;
    for (auto& warp : block.warps) {
      if (warp->split_count == 0) {
        ++finished;
        continue;
      }
      waiting = Wake(*warp) || waiting;
      if (!HasReady(*warp)) continue;
      any_ready = true;
      const Stop stop = RunWarp(*warp);
      if (stop == Stop::kFault) return stop;
      if (stop == Stop::kFinished) ++finished;
      if (stop == Stop::kYield) {
        spinning = spinning || spinning_;
      } else {
        progress = true;
      }
    }
    if (finished == block.warps.size()) return Stop::kFinished;
    // Asynchronous copies come through at the latest when the block has nothing else to do.
    if (!any_ready && PerformCopies(block)) continue;
    if (!any_ready && waiting) {
      spinning_ = true;
      return Stop::kYield;
    }
    if (!any_ready) {
      FailDeadlock(block);
      return Stop::kFault;
    }
    if (progress) {
      block.idle_yields = 0;
      continue;
    }
    spinning_ = spinning || ++block.idle_yields >= kIdleYields;
    if (spinning_) PerformCopies(block);
    return Stop::kYield;
  }
}

void Machine::StartBlock(Block& block) {
  block.output.clear();
  block.idle_yields = 0;
  block.ended = false;
  // What a block finds in shared memory must not depend on which blocks ran here before.
  std::memset(block.shared.data(), 0, block.shared.size_bytes());
  for (Barrier& barrier : block.barriers) {
    barrier = Barrier{std::move(barrier.arrived)};
    std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
  }
  for (auto& warp : block.warps) {
    warp->exited = 0;
    warp->split_count = 1;
    Split& split = warp->splits[0];
    split = Split{};
    split.frame = TakeFrame(*launch_.program->functions[launch_.kernel->function]);
    split.frame->parent = nullptr;
    split.frame->live = warp->exists;
    split.frame->depth = 0;
    split.frame->local_base = 0;
    split.lanes = warp->exists;
    warp->instructions = 0;
    std::fill(std::begin(warp->stack_bytes), std::end(warp->stack_bytes), 0);
    warp->watch = {};
    warp->spin = {};
    warp->local_changes = 0;
    warp->warpgroup = WarpgroupProgress{};
  }
  if (launch_.checks != nullptr) launch_.checks->StartBlock(block);
}

// Blocks of a cluster lie side by side in the grid; ranks count x first, as do clusters.
Cluster* Machine::StartCluster(uint64_t number) {
  if (free_clusters_.empty()) {
    auto made = std::make_unique<Cluster>();
    for (uint32_t rank = 0; rank < launch_.cluster_blocks; ++rank) {
      blocks_.push_back(std::make_unique<Block>(launch_, launch_.warps_per_block));
      blocks_.back()->cluster = made.get();
      blocks_.back()->cluster_rank = rank;
      made->blocks.push_back(blocks_.back().get());
    }
    made->arrived.resize(size_t{launch_.cluster_blocks} * launch_.warps_per_block);
    free_clusters_.push_back(made.get());
    clusters_.push_back(std::move(made));
  }
  Cluster* const cluster = free_clusters_.back();
  free_clusters_.pop_back();
  const Dim3& size = launch_.cluster;
  const uint64_t row = launch_.grid.x / size.x;
  const uint64_t plane = row * (launch_.grid.y / size.y);
  cluster->number = number;
  cluster->index[0] = static_cast<uint32_t>(number % row);
  cluster->index[1] = static_cast<uint32_t>(number % plane / row);
  cluster->index[2] = static_cast<uint32_t>(number / plane);
  cluster->unfinished = launch_.cluster_blocks;
  std::fill(cluster->arrived.begin(), cluster->arrived.end(), 0);
  if (cluster->copies != nullptr) cluster->copies->Reset();
  for (Block* const block : cluster->blocks) {
    const uint32_t rank = block->cluster_rank;
    block->number = number * launch_.cluster_blocks + rank;
    block->index[0] = cluster->index[0] * size.x + rank % size.x;
    block->index[1] = cluster->index[1] * size.y + rank / size.x % size.y;
    block->index[2] = cluster->index[2] * size.z + rank / size.x / size.y;
    StartBlock(*block);
  }
  return cluster;
}

void Machine::EndBlock(Block& block) {
  PerformCopies(block);
  if (launch_.checks != nullptr) launch_.checks->EndBlock(block);
  block.ended = true;
  for (auto& warp : block.warps) {
    instructions_ += warp->instructions;
    for (uint32_t i = 0; i < warp->split_count; ++i)
      DropLanes(warp->splits[i].frame, warp->splits[i].lanes);
    warp->split_count = 0;
  }
  if (!block.output.empty()) {
    const std::lock_guard lock(launch_.mutex);
    launch_.outputs.emplace_back(block.number, std::move(block.output));
  }
  if (weak_ != nullptr) weak_->EndBlock(block);
  launch_.resident_blocks.fetch_sub(1);
  if (--block.cluster->unfinished == 0) free_clusters_.push_back(block.cluster);
}

void Machine::Report(Block& block) {
  const std::lock_guard lock(launch_.mutex);
  if (block.number >= launch_.failed_block.load()) return;
  launch_.failed_block.store(block.number);
  launch_.error.code = fault_.code;
  launch_.error.message = DescribeFault(launch_, block, fault_);
}

Cluster* Machine::StartNext() {
  const uint32_t blocks = launch_.cluster_blocks;
  if (launch_.next_cluster.load() >= launch_.cluster_count) return nullptr;
  // The device is never empty, so a launch whose cluster exceeds the limit still runs.
  const uint64_t resident = launch_.resident_blocks.fetch_add(blocks);
  // Blocks that a deadlock has ended leave room, but nothing starts any more; it is declared before
  // they end, so whoever sees the room sees it as well.
  const bool full =
      launch_.is_deadlocked.load() || (launch_.resident_limit != 0 && !launch_.cooperative &&
                                       resident != 0 && resident + blocks > launch_.resident_limit);
  if (!full) {
    const uint64_t number = launch_.next_cluster.fetch_add(1);
    if (number < launch_.cluster_count && number * blocks < launch_.failed_block.load())
      return StartCluster(number);
  }
  launch_.resident_blocks.fetch_sub(blocks);
  return nullptr;
}

void Machine::Work() {
  std::vector<Block*> resident;
  size_t turn = 0;
  bool want_more = true;
  bool only_spinning = true;  // since the turn was the first block's
  {
    const std::lock_guard lock(launch_.mutex);
    ++launch_.machines;
    if (launch_.checks != nullptr) launch_.reads.Prepare();
  }
  last_event_ = std::chrono::steady_clock::now();
  for (;;) {
    if (want_more || resident.empty()) {
      want_more = false;
      if (const Cluster* const cluster = StartNext()) {
        turn = resident.size();
        resident.insert(resident.end(), cluster->blocks.begin(), cluster->blocks.end());
        only_spinning = false;
      }
    }
    if (resident.empty()) break;
    if (turn >= resident.size()) {
      turn = 0;
      if (only_spinning && LookForDeadlock(resident)) DeclareDeadlock(resident);
      if (!only_spinning) StopObserving();
      only_spinning = true;
    }
    if (launch_.is_deadlocked.load()) {
      if (launch_.checks != nullptr && !launch_.waits_for_host) launch_.checks->Deadlock(resident);
      CollectWaits(resident);
      for (Block* block : resident) EndBlock(*block);
      break;
    }
    Block& block = *resident[turn];
    // Blocks behind a failed one stop; those before it go on, so the error does not depend on the
    // host threads.
    const bool abandoned = block.number > launch_.failed_block.load();
    const uint64_t changes = launch_.changes.load();
    const Stop stop = abandoned    ? Stop::kFinished
                      : observing_ ? ObserveBlock(block)
                                   : RunBlock(block);
    // One that waits may wait for the failed block; it would never end.
    const bool hopeless = spinning_ && launch_.failed_block.load() != ~0ull;
    if (stop == Stop::kYield && !hopeless) {
      want_more = spinning_;
      if (!spinning_ || (observing_ && launch_.changes.load() != changes)) only_spinning = false;
      ++turn;
      continue;
    }
    only_spinning = false;
    if (stop == Stop::kFault && block.number < launch_.failed_block.load()) Report(block);
    EndBlock(block);
    launch_.changes.fetch_add(1);
    resident.erase(resident.begin() + static_cast<ptrdiff_t>(turn));
  }
  launch_.instructions.fetch_add(instructions_);
  const std::lock_guard lock(launch_.mutex);
  --launch_.machines;
  launch_.stuck.erase(this);
}

bool Machine::Fail(LaunchError::Code code, Warp& warp, uint32_t lane, std::string text) {
  fault_.code = code;
  fault_.text = std::move(text);
  fault_.warp = warp.index;
  fault_.lane = lane;
  fault_.has_place = true;
  return false;
}

}  // namespace ops_debug::emulator
