// Finds the program to run as execvp would, and says in words why it cannot run.
#pragma once

#include <string>
#include <variant>

#include "launcher/diagnostics.h"

namespace ops_debug::launcher {

struct TargetProgram {
  std::string path;
  std::string warning;  // why the preload library will not get into it, or empty
};

std::variant<TargetProgram, Problem> FindTarget(const std::string& name);

}  // namespace ops_debug::launcher
