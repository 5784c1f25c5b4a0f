// Commands that ops-debug-compare carries out; only their flags are known here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/flags.h"
#include "launcher/installation.h"

namespace ops_debug::launcher {

// Becomes "ops-debug-compare VERB FLAGS MORE -- OPERANDS", with those of `flags` that were given;
// operands may stand before or behind "--". Returns an exit code only if that program cannot be
// started.
int BecomeCompare(const Installation& installation, const char* verb, std::span<const Flag> flags,
                  const FlagValues& values, const std::vector<std::string>& more = {});

}  // namespace ops_debug::launcher
