// libFuzzer target: loads and runs PTX on the executor, with a bound on the instructions. Whatever
// a module says, nothing may crash, hang or trip a sanitizer.
//
// Bytes that begin like PTX text are taken as such (so real modules can seed the corpus); all
// others choose a launch and a program (fuzz_program.h). OPS_DEBUG_FUZZ_PRINT=1 shows program and
// outcome.
//
//   clang: cmake -DOPS_DEBUG_FUZZ=ON, then fuzz_executor -close_fd_mask=1 CORPUS_FOLDER
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulator/executor.h"
#include "test/emulator/fuzz_program.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kInstructionLimit = 60'000;
// What the driver would refuse before it launches.
constexpr uint32_t kLocalLimitBytes = 512 * 1024, kParameterLimitBytes = 32764;
constexpr size_t kMaximumKernels = 4;

bool printing = false;

// Memory of kernels that call malloc without free fills up: made anew now and then.
DeviceMemory& Memory() {
  static std::unique_ptr<DeviceMemory> memory;
  static unsigned uses = 0;
  if (uses++ % 256 == 0) memory = std::make_unique<DeviceMemory>();
  return *memory;
}

class Buffer {
 public:
  explicit Buffer(DeviceMemory& memory)
      : memory_(memory), address_(memory.Allocate(kFuzzBufferBytes)) {
    auto* words = reinterpret_cast<uint32_t*>(address_);
    for (uint32_t i = 0; i < kFuzzBufferBytes / 4; ++i) words[i] = i * 2654435761u;
  }
  ~Buffer() { memory_.Free(address_); }
  uint64_t address() const { return address_; }

 private:
  DeviceMemory& memory_;
  uint64_t address_;
};

LaunchConfig ChooseLaunch(Bytes& bytes) {
  constexpr uint32_t kThreads[] = {32, 1, 7, 33, 64, 96, 128, 256};
  LaunchConfig config;
  config.grid.x = 1 + bytes.Below(4);
  config.block.x = kThreads[bytes.Below(8)];
  const uint32_t flags = bytes.Byte();
  if ((flags & 1) != 0) {
    config.cluster.x = 2;
    config.grid.x *= 2;
    config.explicit_cluster = true;
  }
  config.cooperative = (flags & 2) != 0;
  if ((flags & 4) != 0) config.block.y = 2;
  if ((flags & 8) != 0) config.resident_blocks = 2;
  config.dynamic_shared_bytes = (flags & 16) != 0 ? 1000 : 0;
  config.schedule_seed = (flags & 96) == 96 ? 1 + bytes.Byte() : 0;
  config.instruction_limit = kInstructionLimit;
  return config;
}

void RunKernel(const Program& program, const std::string& name, LaunchConfig config,
               DeviceMemory& memory) {
  const Kernel& kernel = *program.FindKernel(name);
  const KernelAttributes& attributes = program.Attributes(kernel);
  if (attributes.static_shared_bytes > DeviceModel{}.shared_bytes_per_block_optin ||
      attributes.local_bytes > kLocalLimitBytes ||
      attributes.parameter_bytes > kParameterLimitBytes)
    return;
  const Buffer first(memory), second(memory);
  std::vector<std::byte> parameters(attributes.parameter_bytes);
  for (size_t i = 0; i < attributes.parameter_offsets.size(); ++i) {
    const uint64_t value =
        attributes.parameter_sizes[i] >= 8 ? (i % 2 == 0 ? first : second).address() : 16 + i;
    std::memcpy(parameters.data() + attributes.parameter_offsets[i], &value,
                attributes.parameter_sizes[i] < 8 ? attributes.parameter_sizes[i] : 8);
  }
  config.parameters = parameters;
  const LaunchOutcome outcome = Run(program, kernel, config, DeviceModel{}, memory, 1);
  if (printing)
    std::fprintf(stderr, "%s: %llu thread-instructions, %s\n", name.c_str(),
                 static_cast<unsigned long long>(outcome.thread_instructions),
                 outcome.ok ? "ok" : outcome.error.message.c_str());
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const bool set_up = [] {
    printing = std::getenv("OPS_DEBUG_FUZZ_PRINT") != nullptr;
    return true;
  }();
  (void)set_up;
  Bytes bytes(data, size);
  const bool is_text = size > 0 && (data[0] == '.' || data[0] == '/' || data[0] == '\n');
  LaunchConfig config;
  std::string ptx;
  if (is_text) {
    ptx.assign(reinterpret_cast<const char*>(data), size);
    config.grid.x = 2;
    config.block.x = 64;
    config.instruction_limit = kInstructionLimit;
  } else {
    config = ChooseLaunch(bytes);
    ptx = FuzzProgram(bytes);
  }
  if (printing) std::fprintf(stderr, "%s\n", ptx.c_str());
  DeviceMemory& memory = Memory();
  auto program = Program::Load(ptx, memory);
  if (!program.ok()) {
    if (printing) std::fprintf(stderr, "%s\n", program.error().ToString().c_str());
    return;
  }
  if (printing) {
    for (const std::string& text : (*program)->UnsupportedInstructions())
      std::fprintf(stderr, "unsupported: %s\n", text.c_str());
  }
  size_t kernels = 0;
  for (const std::string& name : (*program)->KernelNames()) {
    if (++kernels > kMaximumKernels) break;
    RunKernel(**program, name, config, memory);
  }
}

}  // namespace ops_debug::emulator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ops_debug::emulator::FuzzOne(data, size);
  return 0;
}
