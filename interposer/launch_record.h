// What is remembered of launches: the recent ones, so that a fault can name its
// launch, and counts per kernel for the coverage report.
#pragma once

#include <cstdint>
#include <string>

#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "interposer/stack.h"

namespace ops_debug::interposer {

struct LaunchRecord {
  uint64_t id = 0;  // from 1; 0 = empty
  uint64_t module_id = 0;
  std::string kernel;  // mangled
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  CUcontext context = nullptr;
  HostStack stack;
};

uint64_t NextLaunchId();
// Keeps the record until kRememberedLaunches more have come.
inline constexpr uint64_t kRememberedLaunches = 8192;
void RememberLaunch(LaunchRecord record);
bool FindLaunch(uint64_t id, LaunchRecord* record);
// With the host stack resolved.
LaunchDescription Describe(const LaunchRecord& record);

void CountChecked(const ModulePointer& module, KernelRecord& kernel);
void CountUnchecked(const ModulePointer& module, KernelRecord& kernel, const std::string& reason);
// Sends what was counted since the last time.
void SendLaunchSummaries();

}  // namespace ops_debug::interposer
