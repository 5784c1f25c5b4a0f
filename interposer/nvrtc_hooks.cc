// NVRTC: a program compiled for a real architecture (-arch=sm_90) keeps the PTX that its cubin was
// assembled from, so whoever fetches the cubin could have fetched the PTX as well: we do. Its
// arithmetic is explicit (`mul.rn` under -fmad=false); the register limit is not in it, so that is
// taken from the compile call.
#include <nvrtc.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "interposer/assembler_command.h"
#include "interposer/library_hooks.h"
#include "interposer/ptx_store.h"

namespace ops_debug::interposer {
namespace {

// How each program that is not destroyed yet was compiled. Copies of NVRTC allocate in one address
// space, so a program's pointer identifies it.
struct Compilations {
  std::mutex mutex;
  std::unordered_map<nvrtcProgram, AssemblerOptions> options;
};
Compilations& TheCompilations() {
  static Compilations* const compilations = new Compilations;
  return *compilations;
}

AssemblerOptions ReadOptions(int count, const char* const* options) {
  std::vector<std::string> arguments;
  std::vector<std::string> for_assembler;
  const auto pass_on = [&](const std::string& text) {
    for (const std::string& part : SplitArguments(text)) for_assembler.push_back(part);
  };
  for (int i = 0; options != nullptr && i < count; ++i) {
    if (options[i] == nullptr) continue;
    const std::string option = options[i];
    bool passed_on = false;
    for (const char* name : {"--ptxas-options", "-Xptxas"}) {
      if (option == name && i + 1 < count && options[i + 1] != nullptr) {
        pass_on(options[++i]);
        passed_on = true;
      } else if (option.starts_with(std::string(name) + "=")) {
        pass_on(option.substr(option.find('=') + 1));
        passed_on = true;
      }
    }
    if (!passed_on) arguments.push_back(option);
  }
  AssemblerOptions result;
  ApplyAssemblerArguments(arguments, &result);
  for (const std::string& argument : arguments) {
    if (argument == "-G") result.optimization = 0;
  }
  result.fuse_multiply_add = true;  // NVRTC's -fmad has had its effect on the PTX
  ApplyAssemblerArguments(for_assembler, &result);
  return result;
}

void RememberProgram(nvrtcProgram program, const char* cubin, size_t cubin_bytes, std::string ptx) {
  StoredPtx stored;
  stored.text = std::move(ptx);
  stored.origin = "NVRTC";
  Compilations& compilations = TheCompilations();
  {
    std::lock_guard lock(compilations.mutex);
    const auto found = compilations.options.find(program);
    if (found != compilations.options.end()) stored.options = found->second;
  }
  RememberPtx({reinterpret_cast<const std::byte*>(cubin), cubin_bytes}, std::move(stored));
}

}  // namespace

OPS_DEBUG_LIBRARY_HOOK(nvrtcCompileProgram, NVRTC_ERROR_INTERNAL_ERROR, nvrtcProgram program,
                       int count, const char* const* options) {
  const nvrtcResult result = real(program, count, options);
  if (result == NVRTC_SUCCESS) {
    KeepingBooks([&] {
      const AssemblerOptions read = ReadOptions(count, options);
      Compilations& compilations = TheCompilations();
      std::lock_guard lock(compilations.mutex);
      compilations.options[program] = read;
    });
  }
  return result;
}

OPS_DEBUG_LIBRARY_HOOK(nvrtcDestroyProgram, NVRTC_ERROR_INTERNAL_ERROR, nvrtcProgram* program) {
  KeepingBooks([&] {
    Compilations& compilations = TheCompilations();
    std::lock_guard lock(compilations.mutex);
    if (program != nullptr) compilations.options.erase(*program);
  });
  return real(program);
}

OPS_DEBUG_LIBRARY_HOOK(nvrtcGetCUBIN, NVRTC_ERROR_INTERNAL_ERROR, nvrtcProgram program,
                       char* cubin) {
  const nvrtcResult result = real(program, cubin);
  if (result != NVRTC_SUCCESS || cubin == nullptr) return result;
  KeepingBooks([&] {
    const auto cubin_size = real.Sibling<decltype(&::nvrtcGetCUBINSize)>("nvrtcGetCUBINSize");
    const auto ptx_size = real.Sibling<decltype(&::nvrtcGetPTXSize)>("nvrtcGetPTXSize");
    const auto get_ptx = real.Sibling<decltype(&::nvrtcGetPTX)>("nvrtcGetPTX");
    size_t cubin_bytes = 0, ptx_bytes = 0;
    if (cubin_size == nullptr || ptx_size == nullptr || get_ptx == nullptr ||
        cubin_size(program, &cubin_bytes) != NVRTC_SUCCESS ||
        ptx_size(program, &ptx_bytes) != NVRTC_SUCCESS || ptx_bytes <= 1)
      return;
    std::string ptx(ptx_bytes, '\0');
    if (get_ptx(program, ptx.data()) != NVRTC_SUCCESS) return;
    ptx.resize(ptx.find('\0') == std::string::npos ? ptx.size() : ptx.find('\0'));
    RememberProgram(program, cubin, cubin_bytes, std::move(ptx));
  });
  return result;
}

}  // namespace ops_debug::interposer
