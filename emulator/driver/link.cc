// cuLink*: several modules become one image. The "cubin" that a program gets back is the linked PTX
// as text, which every loading function accepts.

#include "ptx/link.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "emulator/driver/image.h"
#include "emulator/driver/jit_log.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/state.h"
#include "ptx/fatbin.h"
#include "ptx/parser.h"

struct CUlinkState_st {
  struct Input {
    std::string name, ptx;
  };
  ops_debug::emulator::JitLog log;
  float* wall_time_ms = nullptr;
  bool verbose = false;
  std::vector<Input> inputs;
  std::string image;  // with its final NUL; lives as long as the state
};

namespace ops_debug::emulator {
namespace {

HandleTable<CUlinkState_st>& States() {
  static auto& states = *new HandleTable<CUlinkState_st>;
  return states;
}

template <class Body>
CUresult WithState(CUlinkState handle, Body body) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    CUlinkState_st* state = States().Find(handle);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(device, *state);
  });
}

CUresult Refuse(CUlinkState_st& state, const std::string& why, CUresult status) {
  Say("cuLink: " + why);
  state.log.Error("error   : " + why + "\n");
  return status;
}

std::string NameOf(CUjitInputType type) {
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      return "a cubin (machine code)";
    case CU_JIT_INPUT_OBJECT:
      return "a host object";
    case CU_JIT_INPUT_LIBRARY:
      return "an archive of host objects";
    case CU_JIT_INPUT_NVVM:
      return "LTO-IR";
    default:
      return "an input of an unknown kind";
  }
}

CUresult Add(Device& device, CUlinkState_st& state, CUjitInputType type, std::string_view data,
             const std::string& name) {
  std::string ptx, why;
  switch (type) {
    case CU_JIT_INPUT_PTX:
      ptx.assign(data.substr(0, data.find('\0')));
      break;
    // What cuLinkComplete gave is PTX under the name of a cubin.
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_FATBINARY: {
      const std::string text(data);  // with the NUL that a text image ends with
      const CUresult status = ReadImage(text.c_str(), device.model, &ptx, &why);
      if (status != CUDA_SUCCESS) return Refuse(state, name + ": " + why, status);
      break;
    }
    default:
      return Refuse(state,
                    name + ": " + NameOf(type) + " cannot be linked by this device; give it PTX",
                    CUDA_ERROR_NOT_SUPPORTED);
  }
  // Parsed here as well, so that the call that passes wrong PTX is the one that fails.
  const auto parsed = ptx::Parse(ptx);
  if (!parsed.ok()) {
    const bool unsupported = parsed.error().code == ptx::Diagnostic::Code::kUnsupported;
    return Refuse(state, name + ", line " + parsed.error().ToString(),
                  unsupported ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_PTX);
  }
  if (state.verbose) state.log.Info("info    : added '" + name + "'\n");
  state.inputs.push_back({name, std::move(ptx)});
  return CUDA_SUCCESS;
}

// Options that change what the code computes or what it is bound to.
bool IsRefused(CUjit_option option) {
  switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
      return true;
    default:
      return option < 0 || option >= CU_JIT_NUM_OPTIONS;
  }
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* result) {
  return InContext([&](Device&, CUctx_st&) -> CUresult {
    if (result == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
      return CUDA_ERROR_INVALID_VALUE;
    auto state = std::make_unique<CUlinkState_st>();
    state->log = JitLog(count, options, values);
    for (unsigned i = 0; i < count; ++i) {
      if (IsRefused(options[i])) {
        return Refuse(*state, "option " + std::to_string(int(options[i])) + " is not supported",
                      CUDA_ERROR_NOT_SUPPORTED);
      }
      if (options[i] == CU_JIT_WALL_TIME)
        state->wall_time_ms = reinterpret_cast<float*>(&values[i]);
      if (options[i] == CU_JIT_LOG_VERBOSE) state->verbose = values[i] != nullptr;
    }
    *result = States().Add(std::move(state));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes,
                          const char* name, unsigned int, CUjit_option*, void**) {
  return WithState(handle, [&](Device& device, CUlinkState_st& state) -> CUresult {
    if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::string called =
        name != nullptr ? name : "input " + std::to_string(state.inputs.size() + 1);
    return Add(device, state, type, {static_cast<const char*>(data), bytes}, called);
  });
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  return WithState(handle, [&](Device& device, CUlinkState_st& state) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      return Refuse(state, std::string(path) + ": cannot be opened", CUDA_ERROR_FILE_NOT_FOUND);
    }
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    return Add(device, state, type, bytes, path);
  });
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  return WithState(handle, [&](Device&, CUlinkState_st& state) -> CUresult {
    if (image == nullptr || state.inputs.empty()) return CUDA_ERROR_INVALID_VALUE;
    const auto start = std::chrono::steady_clock::now();
    std::vector<ops_debug::ptx::LinkInput> inputs;
    for (const CUlinkState_st::Input& input : state.inputs)
      inputs.push_back({input.name, input.ptx});
    auto linked = ops_debug::ptx::LinkModules(inputs);
    if (!linked.ok()) return Refuse(state, linked.error().message, CUDA_ERROR_INVALID_IMAGE);
    state.image = std::move(linked.value());
    const std::chrono::duration<float, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    if (state.wall_time_ms != nullptr) *state.wall_time_ms = elapsed.count();
    if (state.verbose) {
      state.log.Info("info    : linked " + std::to_string(inputs.size()) + " modules\n");
    }
    *image = state.image.data();
    if (bytes != nullptr) *bytes = state.image.size() + 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkDestroy(CUlinkState handle) {
  return OnDevice(
      [&](Device&) { return States().Remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

}  // extern "C"

OPS_DEBUG_FIRST_ABI(cuLinkCreate, cuLinkCreate_v2)
OPS_DEBUG_FIRST_ABI(cuLinkAddData, cuLinkAddData_v2)
OPS_DEBUG_FIRST_ABI(cuLinkAddFile, cuLinkAddFile_v2)
