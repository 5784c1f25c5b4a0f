// Texts of deadlocks. See deadlock_text.h.
#include "emulator/deadlock_text.h"

#include <cstdio>
#include <cstring>

#include "emulator/fault_text.h"

namespace ops_debug::emulator {
namespace {

constexpr size_t kListedGroups = 12;

std::string Triple(const uint32_t* index) {
  return "(" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
         std::to_string(index[2]) + ")";
}

std::string Count(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Have(uint64_t count) { return count == 1 ? " has" : " have"; }

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string BarrierReason(const Block& block, uint32_t id) {
  const Barrier& barrier = block.barriers[id];
  uint32_t arrived = 0, threads = 0, exited = 0;
  for (const auto& warp : block.warps) {
    arrived += static_cast<uint32_t>(__builtin_popcount(barrier.arrived[warp->index]));
    threads += static_cast<uint32_t>(__builtin_popcount(warp->exists));
    exited += static_cast<uint32_t>(__builtin_popcount(warp->exited));
  }
  std::string text = "for barrier " + std::to_string(id) + " of their block, at which " +
                     std::to_string(arrived) + " of ";
  if (barrier.expected_threads != 0) {
    text += std::to_string(barrier.expected_threads) +
            " expected threads have arrived (the block has " + std::to_string(threads) + ")";
  } else {
    text += std::to_string(threads) + " threads have arrived";
  }
  if (exited != 0) text += "; " + std::to_string(exited) + Have(exited) + " exited";
  return text;
}

// "shared address 0x10", "global address 0x7f..., flag + 4".
std::string AddressText(const Launch& launch, const Warp& warp, const SpinAccess& spin) {
  if (spin.is_shared) {
    for (const Block* block : warp.block->cluster->blocks) {
      const auto offset = static_cast<size_t>(spin.pointer - block->shared.data());
      if (offset >= block->shared.size_bytes()) continue;
      return "shared address " + Hex(offset) +
             (block == warp.block ? "" : " of block " + Triple(block->index));
    }
  }
  const auto address = reinterpret_cast<uint64_t>(spin.pointer);
  std::string text = "global address " + Hex(address);
  for (const auto& [name, variable] : launch.program->variables) {
    if (address - variable.address < variable.size_bytes) {
      text += " (variable " + name;
      if (address != variable.address) text += " + " + std::to_string(address - variable.address);
      return text + ")";
    }
  }
  uint64_t base = 0, size = 0;
  if (launch.memory->Find(address, &base, &size)) {
    text += " (byte " + std::to_string(address - base) + " of an allocation of " +
            std::to_string(size) + " bytes)";
  }
  return text;
}

std::string SpinReason(const Launch& launch, const Warp& warp) {
  const SpinAccess& spin = warp.spin;
  if (spin.pointer == nullptr) return "in a loop that changes nothing";
  uint64_t value = 0;
  std::memcpy(&value, spin.pointer, spin.bytes < 8 ? spin.bytes : 8);
  return "in a loop that reads " + AddressText(launch, warp, spin) + ", which holds " +
         std::to_string(value) + " and which nobody changes any more";
}

std::string Reason(const Machine& machine, const Warp& warp, const Split& split) {
  switch (split.state) {
    case Split::State::kBarrier:
      return BarrierReason(*warp.block, split.barrier);
    case Split::State::kWarpSync: {
      const uint32_t missing = split.members & ~warp.gone() & ~split.lanes;
      return "for lanes " + Hex(missing) + " of their warp, which are elsewhere";
    }
    case Split::State::kWaiting: {
      const Instruction& in = split.frame->function->code[split.pc];
      return "for " + in.fn.extended->WaitsFor(machine, warp, split);
    }
    case Split::State::kReady:
      return SpinReason(machine.launch(), warp);
  }
  return {};
}

}  // namespace

void AddWaits(const Machine& machine, const Block& block, std::vector<WaitGroup>& groups) {
  for (const auto& warp : block.warps) {
    for (uint32_t i = 0; i < warp->split_count; ++i) {
      const Split& split = warp->splits[i];
      WaitGroup group;
      group.function = split.frame->function;
      group.statement = group.function->code[split.pc].statement;
      if (split.state == Split::State::kReady && warp->spin.function != nullptr) {
        group.function = warp->spin.function;
        group.statement = warp->spin.statement;
      }
      group.state = split.state;
      group.barrier = split.state == Split::State::kBarrier ? split.barrier : 0;
      WaitGroup* known = nullptr;
      for (WaitGroup& other : groups) {
        if (other.function == group.function && other.statement == group.statement &&
            other.state == group.state && other.barrier == group.barrier)
          known = &other;
      }
      if (known == nullptr) {
        const auto lane = static_cast<uint32_t>(__builtin_ctz(split.lanes));
        const uint32_t thread[3] = {warp->thread_index[0][lane], warp->thread_index[1][lane],
                                    warp->thread_index[2][lane]};
        for (int d = 0; d < 3; ++d) {
          group.first_block[d] = block.index[d];
          group.first_thread[d] = thread[d];
        }
        group.first = "block " + Triple(block.index) + ", thread " + Triple(thread);
        group.reason = Reason(machine, *warp, split);
        groups.push_back(group);
        known = &groups.back();
      }
      known->threads += static_cast<uint64_t>(__builtin_popcount(split.lanes));
      if (known->last_block != block.number) ++known->blocks;
      known->last_block = block.number;
    }
  }
}

std::string DescribeWaits(const Launch& launch, const std::vector<WaitGroup>& groups) {
  std::string text;
  size_t listed = 0;
  for (const WaitGroup& group : groups) {
    if (listed++ == kListedGroups) {
      text +=
          "; and threads at " + std::to_string(groups.size() - kListedGroups) + " further places";
      break;
    }
    if (!text.empty()) text += "; ";
    text += Count(group.threads, "thread");
    if (group.blocks > 1) text += " of " + Count(group.blocks, "block");
    const bool spins = group.state == Split::State::kReady;
    text += (group.threads == 1) ? (spins ? " spins" : " waits") : (spins ? " spin" : " wait");
    text += " at " + DescribePlace(*launch.program, *group.function, group.statement) + " (" +
            (group.threads == 1 ? "" : "first: ") + group.first + ") " + group.reason;
  }
  return text;
}

std::string DescribeLaunchDeadlock(const Launch& launch) {
  const Program::Impl& program = *launch.program;
  uint64_t resident = launch.deadlocked_blocks;
  const uint64_t unstarted = launch.unstarted * launch.cluster_blocks;
  const uint64_t ended = launch.block_count - unstarted - resident;
  std::string text = program.functions[launch.kernel->function]->name;
  text = launch.waits_for_host ? "kernel " + text + " waits for memory that the host can write: "
                               : "deadlock in kernel " + text + ": no thread can go on: ";
  text += DescribeWaits(launch, launch.waits);
  if (launch.cooperative || ended + unstarted != 0) {
    text += "; of " + Count(launch.block_count, "block") + " " + std::to_string(resident) +
            (resident == 1 ? " waits or spins" : " wait or spin") + ", " + std::to_string(ended) +
            Have(ended) + " ended";
    if (unstarted != 0) {
      text += ", " + std::to_string(unstarted) + " cannot start: the device holds " +
              std::to_string(launch.resident_limit) +
              " of this kernel at a time, so blocks must "
              "not wait for later ones";
    }
  }
  return text;
}

}  // namespace ops_debug::emulator
