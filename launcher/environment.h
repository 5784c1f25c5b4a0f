// The environment of the processes that the launcher starts.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "launcher/diagnostics.h"
#include "launcher/installation.h"
#include "launcher/run_options.h"

namespace ops_debug::launcher {

using Environment = std::map<std::string, std::string>;

Environment InheritedEnvironment();

// What the target gets: the inherited variables, the preload library in front of the user's own,
// the emulator's folder in front of the library path, our Python package in front of the Python
// path, and the variables of proto/session.h.
// `device` is never kAuto. `replay_folder`: of captured launches; empty: none are captured.
std::variant<Environment, Problem> TargetEnvironment(const Environment& inherited,
                                                     const Installation& installation,
                                                     const RunOptions& options,
                                                     const DeviceChoice& device,
                                                     const std::string& ring_name,
                                                     const std::string& replay_folder = "");

// The folder of --ptx-store as the target finds it from wherever it goes: absolute; by default
// ops-debug/ptx in the user's cache folder (XDG Base Directory Specification: $XDG_CACHE_HOME if it
// is absolute, else ~/.cache). Empty: in memory only, asked for or because there is no home.
std::string PtxStoreFolder(const Environment& inherited, const std::string& asked);

// Device `index` of those that `visible` (CUDA_VISIBLE_DEVICES; empty: all) leaves.
std::string VisibleDevice(const std::string& visible, uint32_t index);

}  // namespace ops_debug::launcher
