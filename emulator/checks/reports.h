// Findings of the checks as plain data that owns its text, until they are delivered through
// shadow::EmulatorReportFunctions (Checks::Deliver).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/checks/sites.h"
#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {

// One side: an access of a kernel's thread, or an operation (`from_operation`).
struct AccessReport {
  bool from_operation = false;
  SiteId site = kNoSite;
  uint32_t access = 0;  // proto AccessKind; of operations too, where known
  uint32_t space = 0;   // proto AddressSpace
  std::string kernel;
  shadow::OperationId operation;
  uint64_t token = 0;
  uint32_t block[3] = {};
  uint32_t thread[3] = {};
  uint64_t address = 0;
  uint32_t bytes = 0;
  std::vector<uint8_t> value;
  std::string semantics;
  // The declared variable that holds `address`, if it is known beside what the site names.
  std::string variable;
  uint64_t variable_bytes = 0;
};

struct RaceReport {
  uint32_t kind = 0;  // proto Race.Kind
  AccessReport first, second;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint64_t count = 1;
  bool same_value = false;
  uint32_t missing = 0;  // proto MissingOrder
  std::string pattern;
  SourceLine remedy_after, remedy_before;  // line 0: not known
};

struct UninitialisedReport {
  AccessReport read;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint64_t count = 1;
  std::string use;
  SiteId use_site = kNoSite;
};

struct WaitersReport {
  SiteId site = kNoSite;
  uint64_t threads = 0, blocks = 0;
  uint32_t first_block[3] = {}, first_thread[3] = {};
  std::string what;
};

struct SyncFaultReport {
  uint32_t kind = 0;  // proto SyncFault.Kind
  AccessReport place;
  std::vector<WaitersReport> waiters;
  uint64_t count = 1;
  std::string text;
};

}  // namespace ops_debug::emulator
