// What is remembered of launches: the recent ones, so that a fault can name its launch, and counts
// per kernel for the coverage report. A launch makes a record on every call, so a record holds
// references only; names and stacks are resolved when an event needs them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "interposer/python_stack.h"
#include "interposer/stack_cache.h"

namespace ops_debug::interposer {

struct LaunchRecord {
  uint64_t id = 0;           // from 1; 0 = empty
  FunctionPointer function;  // keeps the kernel's record alive
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  bool graph_node = false;  // a graph's launches run it
  bool left_out = false;    // the user asked for other launches only
  CUcontext context = nullptr;
  SharedHostStack stack;
  PythonStackHandle python_stack;
};

uint64_t NextLaunchId();
uint64_t LatestLaunchId();  // 0: none yet
// Keeps the record until kRememberedLaunches more have come; those of graph nodes, which may run at
// any later time, are kept apart, the first kRememberedNodes of them for good.
inline constexpr uint64_t kRememberedLaunches = 8192;
inline constexpr uint64_t kRememberedNodes = 65536;
void RememberLaunch(LaunchRecord record);
bool FindLaunch(uint64_t id, LaunchRecord* record);
// With the stacks resolved.
LaunchDescription Describe(const LaunchRecord& record);

void CountChecked(const ModulePointer& module, KernelRecord& kernel, Engine engine,
                  uint64_t launches = 1);
void CountUnchecked(const ModulePointer& module, KernelRecord& kernel, std::string_view reason,
                    uint64_t launches = 1);
// Has the kernel's numbers sent with the next summaries.
void EnterSummary(const ModulePointer& module, KernelRecord& kernel);
// Sends what was counted since the last time.
void SendLaunchSummaries();

}  // namespace ops_debug::interposer
