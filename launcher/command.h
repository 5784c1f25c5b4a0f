// A subcommand as data; the table of all of them is in commands.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/flags.h"
#include "launcher/installation.h"

namespace ops_debug::launcher {

struct FlagGroup {
  const char* title;
  const std::span<const Flag>* flags;
};

struct Command {
  const char* name;
  const char* summary;  // one line, for the list of commands
  const char* usage;    // behind "ops-debug NAME"
  const char* example;  // one or more whole command lines
  std::vector<FlagGroup> groups;
  int (*run)(const Installation& installation, const FlagValues& values);
  const char* exit_codes = nullptr;  // null: those of a run under the tool
};

std::span<const Command> Commands();

// The whole --help of one command, and of the program.
std::string DescribeCommand(const Command& command);
std::string DescribeProgram();

}  // namespace ops_debug::launcher
