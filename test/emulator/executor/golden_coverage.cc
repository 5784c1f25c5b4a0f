// Which lane operations (emulator/isa) and which opcodes of the decoder's table no golden case
// uses.
//
//   golden_coverage --exceptions FILE MODULE.ptx...
//
// A lane operation is used if a decoded instruction of a module holds its function, so names that
// share one function count together. Each line of FILE excuses one name: `KIND NAME: REASON`, where
// KIND is `lane` or `opcode`. Exit code 1 if something unused is not excused, or something excused
// is used after all: the list stays true.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/decoder.h"
#include "emulator/isa/lane_ops.h"
#include "emulator/program.h"

namespace ops_debug::emulator {
namespace {

struct Used {
  std::set<const void*> functions;
  std::set<std::string, std::less<>> opcodes;
};

template <class Fn>
const void* AddressOf(Fn* fn) {
  return reinterpret_cast<const void*>(fn);
}

bool HasAccess(Op op) {
  return op == Op::kLoad || op == Op::kStore || op == Op::kLoadParameter ||
         op == Op::kLoadUniform || op == Op::kLoadFrame || op == Op::kStoreFrame;
}

void Note(const Program& program, Used* used) {
  for (const auto& function : program.impl().functions) {
    for (const Instruction& instruction : function->code) {
      // All members of the union are pointers; one to data equals no lane operation.
      const void* pointer = nullptr;
      static_assert(sizeof(instruction.fn) == sizeof(pointer));
      std::memcpy(&pointer, &instruction.fn, sizeof(pointer));
      used->functions.insert(pointer);
      if (HasAccess(instruction.op))
        used->functions.insert(AddressOf(instruction.fn.access->resize));
    }
    for (const ptx::Statement& statement : program.impl().Source(*function).body) {
      if (const auto* instruction = std::get_if<ptx::Instruction>(&statement))
        used->opcodes.insert(std::string(instruction->opcode));
    }
  }
}

bool Uses(const Used& used, const LaneRegistry& lanes, const std::string& key) {
  return used.functions.contains(AddressOf(lanes.FindAlu(key))) ||
         used.functions.contains(AddressOf(lanes.FindCompare(key))) ||
         used.functions.contains(AddressOf(lanes.FindCarry(key)));
}

// "lane add.f32x2" -> reason.
std::map<std::string, std::string> ReadExceptions(const std::string& file) {
  std::map<std::string, std::string> exceptions;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(": ");
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    exceptions[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return exceptions;
}

int Main(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> exceptions;
  Used used;
  size_t modules = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--exceptions" && i + 1 < arguments.size()) {
      exceptions = ReadExceptions(arguments[++i]);
      continue;
    }
    std::ifstream stream(arguments[i], std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    DeviceMemory memory;
    auto program = Program::Load(text, memory);
    if (!program.ok()) {
      std::cout << arguments[i] << ": does not load: " << program.error().message << "\n";
      return 1;
    }
    Note(**program, &used);
    ++modules;
  }
  used.functions.erase(nullptr);
  std::map<std::string, bool> names;
  const LaneRegistry& lanes = SelectLanes();
  for (const std::string& key : lanes.Keys()) names["lane " + key] = Uses(used, lanes, key);
  for (const auto& [opcode, method] : Decoder::Methods())
    names["opcode " + std::string(opcode)] = used.opcodes.contains(opcode);
  size_t unused = 0;
  for (const auto& [name, is_used] : names) {
    if (!is_used && !exceptions.contains(name)) {
      ++unused;
      std::cout << "UNUSED " << name << ": no golden case uses it\n";
    }
  }
  size_t wrong = 0;
  for (const auto& [name, reason] : exceptions) {
    const auto found = names.find(name);
    if (found != names.end() && !found->second) continue;
    ++wrong;
    std::cout << "EXCUSED " << name << ": "
              << (found == names.end() ? "there is no such name" : "but a golden case uses it")
              << "\n";
  }
  std::cout << modules << " modules use " << names.size() - unused - exceptions.size() + wrong
            << " of " << names.size() << " lane operations and opcodes; " << unused
            << " unused and not excused, " << exceptions.size() << " excused\n";
  return modules != 0 && unused == 0 && wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ops_debug::emulator

int main(int argc, char** argv) {
  return ops_debug::emulator::Main(std::vector<std::string>(argv + 1, argv + argc));
}
