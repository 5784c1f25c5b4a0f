// Loads every PTX file named on the command line into the executor and says which instructions it
// lacks. Exit code 1 if a file does not load or an instruction is missing that is not excused.
//
//   corpus_support [--allow PREFIX]... FILE.ptx...
//
// PREFIX excuses instructions that start so ("tex."), which the README must then name.
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/executor.h"
#include "emulator/memory.h"

namespace {

using ops_debug::emulator::DeviceMemory;
using ops_debug::emulator::Program;

// "`@%p1 tex.2d.v4 ...;` (PTX line 3)" -> "tex.2d.v4".
std::string OpcodeOf(std::string_view place) {
  if (place.starts_with('`')) place.remove_prefix(1);
  if (place.starts_with('@')) place.remove_prefix(place.find(' ') + 1);
  return std::string(place.substr(0, place.find(' ')));
}

bool Excused(std::string_view opcode, const std::vector<std::string>& allowed) {
  for (const std::string& prefix : allowed) {
    if (opcode.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> allowed, files;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--allow" && i + 1 < argc) {
      allowed.emplace_back(argv[++i]);
    } else {
      files.emplace_back(argv[i]);
    }
  }
  size_t loaded = 0;
  size_t missing = 0;
  std::map<std::string, size_t> counts;
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    DeviceMemory memory;
    auto program = Program::Load(text, memory);
    if (!program.ok()) {
      std::cout << file << ": does not load: " << program.error().message << "\n";
      continue;
    }
    ++loaded;
    for (const std::string& place : (*program)->UnsupportedInstructions()) {
      const std::string opcode = OpcodeOf(place);
      ++counts[opcode];
      if (!Excused(opcode, allowed)) {
        ++missing;
        std::cout << file << ": " << place << "\n";
      }
    }
  }
  for (const auto& [opcode, count] : counts)
    std::cout << "unsupported " << opcode << ": " << count << "\n";
  std::cout << loaded << " of " << files.size() << " files load, " << missing
            << " unsupported instructions that are not excused\n";
  return loaded == files.size() && missing == 0 && !files.empty() ? 0 : 1;
}
