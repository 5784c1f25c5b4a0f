// Tickets for all kernels that one launch of a graph runs. They are taken node by node in an order
// that the edges allow, so that a thread which finds a smaller ticket of its own graph in a cell
// asks only whether the edges order that node before its own: the runs of nodes for which they do
// not are part of its list of unordered tickets, beside those of other streams (race_abi.h).
#include <algorithm>
#include <numeric>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/race_state.h"

namespace ops_debug::interposer {
namespace {

using shadow::RaceLaunch;
using shadow::TicketRange;

uint64_t Blocks(const RaceRequest& node) {
  return uint64_t{node.grid.x} * node.grid.y * node.grid.z;
}

// The tickets of the run's nodes, as far as they have any.
TicketRange TicketsOf(std::span<const RaceRequest> nodes, std::span<const RaceLaunch> launches,
                      uint32_t first, uint32_t last) {
  TicketRange range{1, 0};
  for (uint32_t i = first; i <= last; i++) {
    if (launches[i].channel == 0) continue;
    if (range.last == 0) range.first = launches[i].first_ticket;
    range.last = launches[i].first_ticket + static_cast<uint32_t>(Blocks(nodes[i])) - 1;
  }
  return range;
}

}  // namespace

std::unique_lock<std::mutex> RaceState::PrepareGraph(std::span<const RaceRequest> nodes,
                                                     uint64_t token, std::span<RaceLaunch> out) {
  std::unique_lock lock(mutex_);
  std::fill(out.begin(), out.end(), RaceLaunch{});
  if (nodes.empty() || !Ready()) return lock;
  InternalCalls calls(context_);
  const uint64_t blocks =
      std::accumulate(nodes.begin(), nodes.end(), uint64_t{0},
                      [](uint64_t sum, const RaceRequest& node) { return sum + Blocks(node); });
  const auto lists = static_cast<uint64_t>(
      std::ranges::count_if(nodes, [](const RaceRequest& node) { return !node.beside.empty(); }));
  if (!calls.ok()) return lock;
  if (blocks >= shadow::kLastTicket || lists >= kRangeSlots) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "graphs of more than 16,777,214 blocks, or of more than 511 "
                                     "kernels in parallel branches, are not checked for races",
                             .hint = "the CPU device checks them (--device emulator)"});
    return lock;
  }
  // What would wait for the device, and change what the first nodes were given, comes first.
  if (!MakeRoomForTickets(blocks) || !MakeRoomForRanges(lists + 1)) return lock;
  RaceLaunch unused;
  for (const RaceRequest& node : nodes) GiveSharedCells(node, &unused);
  std::vector<TicketRange> beside;
  for (size_t i = 0; i < nodes.size(); i++) {
    beside.clear();
    for (const auto& [first, last] : nodes[i].beside) {
      const TicketRange range = TicketsOf(nodes, out, first, last);
      if (range.last != 0) beside.push_back(range);
    }
    PrepareOne(nodes[i], beside, token, &out[i]);
  }
  return lock;
}

}  // namespace ops_debug::interposer
