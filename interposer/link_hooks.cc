// cuLink*: the driver links PTX, cubins and libraries of code to one cubin. Of PTX alone, linked in
// the same way (ptx/link.h), that is the PTX of the cubin. Other links are named once; what they
// make is machine code without PTX.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "interposer/event_sender.h"
#include "interposer/files.h"
#include "interposer/hooks.h"
#include "interposer/library_hooks.h"
#include "interposer/ptx_store.h"

namespace ops_debug::interposer {
namespace {

struct Link {
  AssemblerOptions options;
  std::vector<std::string> ptx;
  bool only_ptx = true;
};

struct Links {
  std::mutex mutex;
  std::unordered_map<CUlinkState, Link> links;
};
Links& TheLinks() {
  static Links* const links = new Links;
  return *links;
}

void ReadOptions(unsigned int count, const CUjit_option* options, void* const* values,
                 AssemblerOptions* out) {
  for (unsigned int i = 0; options && values && i < count; i++) {
    const auto value = static_cast<int>(reinterpret_cast<uintptr_t>(values[i]));
    if (options[i] == CU_JIT_MAX_REGISTERS) out->max_registers = value;
    if (options[i] == CU_JIT_OPTIMIZATION_LEVEL) out->optimization = value;
    if (options[i] == CU_JIT_GENERATE_DEBUG_INFO && value != 0) out->optimization = 0;
  }
}

void AddInput(CUlinkState state, CUjitInputType type, const char* data, size_t bytes,
              unsigned int count, const CUjit_option* options, void* const* values) {
  Links& links = TheLinks();
  std::lock_guard lock(links.mutex);
  const auto found = links.links.find(state);
  if (found == links.links.end()) return;
  Link& link = found->second;
  link.only_ptx = link.only_ptx && type == CU_JIT_INPUT_PTX && bytes != 0;
  if (!link.only_ptx) return;
  link.ptx.emplace_back(data, strnlen(data, bytes));
  ReadOptions(count, options, values, &link.options);
}

void ReportMixedLink() {
  SendOnce(DiagnosticEvent{
      .severity = proto_enums::Severity::kWarning,
      .text = "the program links machine code at run time (cuLink*): there is no PTX of the result",
      .hint = "load each PTX by itself to have it checked in full"});
}

}  // namespace

OPS_DEBUG_HOOK(cuLinkCreate_v2, unsigned int count, CUjit_option* options, void** values,
               CUlinkState* state) {
  const CUresult result = real(count, options, values, state);
  if (result == CUDA_SUCCESS && RemembersPtx()) {
    Link link;
    ReadOptions(count, options, values, &link.options);
    Links& links = TheLinks();
    std::lock_guard lock(links.mutex);
    links.links[*state] = std::move(link);
  }
  return result;
}
OPS_DEBUG_HOOK_AS(cuLinkCreate, cuLinkCreate_v2)

OPS_DEBUG_HOOK(cuLinkAddData_v2, CUlinkState state, CUjitInputType type, void* data, size_t bytes,
               const char* name, unsigned int count, CUjit_option* options, void** values) {
  const CUresult result = real(state, type, data, bytes, name, count, options, values);
  if (result == CUDA_SUCCESS)
    AddInput(state, type, static_cast<const char*>(data), bytes, count, options, values);
  return result;
}
OPS_DEBUG_HOOK_AS(cuLinkAddData, cuLinkAddData_v2)

OPS_DEBUG_HOOK(cuLinkAddFile_v2, CUlinkState state, CUjitInputType type, const char* path,
               unsigned int count, CUjit_option* options, void** values) {
  const CUresult result = real(state, type, path, count, options, values);
  if (result == CUDA_SUCCESS) {
    std::string bytes;
    if (type == CU_JIT_INPUT_PTX) ReadWholeFile(path, &bytes);
    AddInput(state, type, bytes.data(), bytes.size(), count, options, values);
  }
  return result;
}
OPS_DEBUG_HOOK_AS(cuLinkAddFile, cuLinkAddFile_v2)

OPS_DEBUG_HOOK(cuLinkComplete, CUlinkState state, void** cubin, size_t* size) {
  size_t bytes = 0;
  const CUresult result = real(state, cubin, size ? size : &bytes);
  if (result != CUDA_SUCCESS || !cubin || !RemembersPtx()) return result;
  Link link;
  {
    Links& links = TheLinks();
    std::lock_guard lock(links.mutex);
    const auto found = links.links.find(state);
    if (found != links.links.end()) link = found->second;
  }
  std::string text = link.only_ptx ? LinkTexts(link.ptx) : "";
  if (text.empty()) {
    ReportMixedLink();
  } else {
    RememberPtx({static_cast<const std::byte*>(*cubin), size ? *size : bytes},
                {.text = std::move(text), .options = link.options, .origin = "cuLinkComplete"});
  }
  return result;
}

OPS_DEBUG_HOOK(cuLinkDestroy, CUlinkState state) {
  {
    Links& links = TheLinks();
    std::lock_guard lock(links.mutex);
    links.links.erase(state);
  }
  return real(state);
}

}  // namespace ops_debug::interposer
