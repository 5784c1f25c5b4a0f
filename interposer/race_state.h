// What kernels that check races and barriers themselves need from the host, per context: tickets
// for their blocks, cells for the memory that they touch, the order between launches
// (shadow/abi/race_abi.h says what the device does with it). And the way back: records that the
// device wrote become Race and SyncFault events.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/driver_table.h"
#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "interposer/stream_order.h"
#include "shadow/abi/race_abi.h"
#include "shadow/host/bounds.h"
#include "shadow/host/race_cells.h"
#include "shadow/host/stream_clocks.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

struct ContextState;

// True if instrumented kernels look for races or for faults of barriers.
bool ChecksRacesOnDevice() noexcept;

// Numbers the sites of a module that was just instrumented, over all modules.
void EnterRaceSites(const ModulePointer& module);

// One launch that is about to be made.
struct RaceRequest {
  const shadow::KernelPlan* plan = nullptr;
  const shadow::LaunchParameters* parameters = nullptr;
  const LoadedModule* module = nullptr;
  CUfunction twin = nullptr;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  uint64_t launch_id = 0;
  const shadow::SubmittedOperation* order = nullptr;  // null: not known, after everything
  // A node of a graph: nodes before it in the same PrepareGraph with which nothing orders it, as
  // runs [first, last].
  std::span<const std::pair<uint32_t, uint32_t>> beside;
  bool in_parallel = false;     // with other nodes of its graph, earlier or later ones
  bool* lean_serves = nullptr;  // set if the lean twin is to be launched in the twin's place
};

class RaceState {
 public:
  explicit RaceState(ContextState& context);
  RaceState(const RaceState&) = delete;
  RaceState& operator=(const RaceState&) = delete;

  // Fills in the launch parameter's part; all zero if this launch is not checked. Tickets must grow
  // in the order in which the driver gets the launches, so the caller holds the lock that comes
  // back until the driver has this one.
  std::unique_lock<std::mutex> Prepare(const RaceRequest& request, shadow::RaceLaunch* out);

  // The same for all kernels that one launch of a graph runs, in an order that its edges allow (so
  // that a node with a greater ticket never comes before one with a smaller one). `token`: of the
  // launch.
  std::unique_lock<std::mutex> PrepareGraph(std::span<const RaceRequest> nodes, uint64_t token,
                                            std::span<shadow::RaceLaunch> out);

  // Work of the host's, such as a copy, touches memory: call in front of it.
  void Touch(const RangeAccess& access, const shadow::OperationOrder& order,
             CUstream explicit_stream);

  // The memory is another allocation's now. `stream`: in its order; null: at once.
  void Renew(uint64_t address, uint64_t size_bytes, CUstream stream);

  // Reports what is new. `idle`: nothing runs in the context, start afresh.
  void Drain(bool idle);

 private:
  static constexpr uint32_t kRangeSlots = 512;

  struct Launch {
    uint32_t first_ticket = 0;
    uint32_t blocks = 0;
    uint64_t launch_id = 0;
    Dim3 grid, block;
    shadow::OperationId operation;
    bool is_kernel = true;     // or `launch_id` is the token of a copy or memset
    uint64_t graph_token = 0;  // of the launch of the graph that it is a node of
  };
  struct Reported {
    uint64_t key = 0;
    uint64_t count = 0;
  };

  bool Ready();
  // True if nothing runs in the context now. Not while some stream is captured.
  bool WaitUntilIdle();
  // May wait until nothing runs. False: there is no room.
  bool MakeRoomForTickets(uint64_t blocks);
  bool MakeRoomForRanges(uint64_t lists);
  bool TakeTickets(uint64_t blocks, shadow::RaceLaunch* out);
  // With the lock held. `beside`: tickets of the same graph.
  void PrepareOne(const RaceRequest& request, std::span<const shadow::TicketRange> beside,
                  uint64_t graph_token, shadow::RaceLaunch* out);
  void Order(const shadow::SubmittedOperation* order, std::span<const shadow::TicketRange> beside,
             shadow::RaceLaunch* out);
  bool LoadRangeKernel();
  bool UploadRanges(const std::vector<shadow::TicketRange>& ranges, shadow::RaceLaunch* out);
  void GiveSharedCells(const RaceRequest& request, shadow::RaceLaunch* out);
  void GiveGlobalCells(const RaceRequest& request, shadow::RaceLaunch* out);
  static bool SharedIsProved(const RaceRequest& request);
  uint32_t SharedBytes(CUfunction twin);
  const Launch* LaunchOfTicket(uint32_t ticket) const;
  bool CoverAll();
  bool CoverVariables(const RaceRequest& request);
  void SayUncovered();

  AccessDescription Describe(const shadow::RaceRecord& record, bool first) const;
  void Report(const shadow::RaceRecord& record, uint64_t count);

  ContextState& context_;
  std::mutex mutex_;  // guards the rest
  std::unique_ptr<shadow::RaceCells> cells_;
  bool failed_ = false;
  uint32_t next_ticket_ = 1;
  std::deque<Launch> launches_;  // by ticket
  // Of the book's allocations, when all of them, or a module's variables, were given cells.
  uint64_t covered_version_ = 0;
  std::unordered_map<uint64_t, uint64_t> covered_variables_;  // by module id
  uint64_t ranges_ = 0;  // device address of TicketRange[kRangeSlots][kMostRanges]
  uint32_t next_range_slot_ = 0;
  // Uploaded last; nodes of a graph often have the same.
  std::vector<shadow::TicketRange> latest_ranges_;
  uint64_t latest_ranges_place_ = 0;
  CUmodule module_ = nullptr;
  CUfunction range_kernel_ = nullptr;
  bool range_kernel_failed_ = false;
  std::unordered_map<CUfunction, uint32_t> shared_bytes_;
  uint64_t seen_conflicts_ = 0;
  uint64_t seen_overflow_ = 0;
  std::unordered_map<uint32_t, Reported> reported_;  // by index of the record
};

// The same for all contexts that check races.
void TouchForRaces(std::span<const RangeAccess> accesses, const shadow::OperationOrder& order,
                   CUstream explicit_stream);

// Of all contexts; cheap if nothing was launched. `idle_context`: nothing runs there.
void DrainRaces(CUcontext idle_context) noexcept;

}  // namespace ops_debug::interposer
