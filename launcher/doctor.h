// `ops-debug doctor`: what this machine lets ops-debug do, what is missing, what that costs and
// what to do about it. It only looks: nothing is changed, no GPU memory is used for longer than a
// probe.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/environment.h"
#include "launcher/flags.h"
#include "launcher/installation.h"

namespace ops_debug::launcher {

// From best to worst.
enum class Standing {
  kGood,
  kNote,     // worth knowing, costs nothing
  kLimits,   // something works less well, or not at all; checking goes on
  kMissing,  // GPU checking does not work without it
};

struct Observation {
  std::string id;       // for programs: "driver", "gpu", "sanitizer-api"
  std::string subject;  // for people
  Standing standing = Standing::kGood;
  std::string found;
  std::string cost;                            // what it means that things are so; empty: nothing
  std::string advice;                          // what to do; empty: nothing
  std::map<std::string, std::string> details;  // for programs
};
using Observations = std::vector<Observation>;

// What is looked at. `root` stands in front of every path of the system (for tests).
struct Machine {
  const Installation& installation;
  const Environment& environment;
  std::string root;
  std::chrono::seconds patience{0};  // with each probe; 0: what is usual for it

  std::chrono::seconds Limit(std::chrono::seconds usual) const {
    return patience.count() > 0 ? patience : usual;
  }
  std::string Path(const std::string& path) const { return root + path; }
  std::string Variable(const std::string& name) const;
  // Text of a file below the root, at most 64 KiB; empty if there is none.
  std::string Read(const std::string& path) const;
  bool Has(const std::string& path) const;
  // The first executable of that name in PATH; empty: none.
  std::string FindProgram(const std::string& name) const;
};

// The parts of the machine, one file each (doctor_*.cc).
struct GpuAnswer {
  bool usable = false;   // a kernel that we rewrote could be loaded
  int cuda_version = 0;  // of the driver, as cuDriverGetVersion gives it; 0: no driver
};
GpuAnswer ExamineGpu(const Machine& machine, Observations& observations);
void ExamineToolkit(const Machine& machine, const std::vector<std::string>& site_packages,
                    int driver_cuda_version, Observations& observations);
void ExamineSystem(const Machine& machine, Observations& observations);
void ExamineOtherTools(const Machine& machine, Observations& observations);
// Whether what is needed on a GPU and on the emulator is there.
struct OwnPieces {
  bool interposer = false, emulator = false;
};
OwnPieces ExamineInstallation(const Machine& machine, Observations& observations);
// Fills `site_packages` with the folders of the `python3` in PATH.
void ExaminePython(const Machine& machine, std::vector<std::string>* site_packages,
                   Observations& observations);

extern const std::span<const Flag> kDoctorFlags;

// The command. 0: GPU checking works; 4: only the emulator does; 3: neither.
int Doctor(const Installation& installation, const FlagValues& values);

}  // namespace ops_debug::launcher
