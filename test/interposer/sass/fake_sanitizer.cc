#include "test/interposer/sass/fake_sanitizer.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

using ops_debug::interposer::fake::Sanitizer;

namespace {

struct Library : Sanitizer {
  void Begin(CUfunction function) override {
    if (!callback) return;
    Sanitizer_LaunchData data{};
    data.function = function;
    callback(nullptr, SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
  }
  void Loaded(CUcontext context, CUmodule module, const std::string& cubin) override {
    Sanitizer_ResourceModuleData data{};
    data.context = context;
    data.module = module;
    data.pCubin = cubin.data();
    data.cubinSize = cubin.size();
    callback(nullptr, SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &data);
  }
  void Unloading(CUmodule module) override {
    Sanitizer_ResourceModuleData data{};
    data.module = module;
    callback(nullptr, SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
             &data);
  }
};

Sanitizer& Fake() {
  static auto* sanitizer = new Library;
  return *sanitizer;
}

// Bytes of an ELF file whose section table ends it.
size_t ElfBytes(const void* image) {
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  const auto* sections =
      reinterpret_cast<const Elf64_Shdr*>(static_cast<const std::byte*>(image) + header->e_shoff);
  size_t end = header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_NOBITS)
      end = std::max<size_t>(end, sections[i].sh_offset + sections[i].sh_size);
  }
  return end;
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Sanitizer* ops_debug_fake_sanitizer() { return &Fake(); }

SanitizerResult sanitizerSubscribe(Sanitizer_SubscriberHandle* subscriber,
                                   Sanitizer_CallbackFunc callback, void*) {
  if (const char* result = std::getenv("OPS_DEBUG_TEST_SUBSCRIBE_RESULT"))
    return static_cast<SanitizerResult>(std::atoi(result));
  Fake().callback = callback;
  *subscriber = nullptr;
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerUnsubscribe(Sanitizer_SubscriberHandle) { return SANITIZER_SUCCESS; }
SanitizerResult sanitizerEnableCallback(uint32_t, Sanitizer_SubscriberHandle,
                                        Sanitizer_CallbackDomain, Sanitizer_CallbackId) {
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerAddPatches(const void* image, CUcontext) {
  const auto* bytes = static_cast<const std::byte*>(image);
  Fake().patch_images.emplace_back(bytes, bytes + ElfBytes(image));
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerPatchInstructions(const Sanitizer_InstructionId instruction,
                                           CUmodule module, const char* function) {
  Fake().instructions[module][instruction] = function;
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerPatchModule(CUmodule module) {
  if (Fake().patch_result == SANITIZER_SUCCESS) Fake().patched.push_back(module);
  return Fake().patch_result;
}
SanitizerResult sanitizerSetLaunchCallbackData(Sanitizer_LaunchHandle, CUfunction function,
                                               Sanitizer_StreamHandle, const void* data) {
  Fake().user_data.emplace_back(function, reinterpret_cast<uint64_t>(data));
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerSetDeviceGraphData(CUgraphExec, Sanitizer_StreamHandle, const void*) {
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerGetFunctionPcAndSize(CUmodule, const char* name, uint64_t* pc,
                                              uint64_t* size) {
  const auto found = Fake().places.find(name);
  if (found == Fake().places.end()) return SANITIZER_ERROR_INVALID_PARAMETER;
  *pc = found->second.first;
  *size = found->second.second;
  return SANITIZER_SUCCESS;
}
SanitizerResult sanitizerGetResultString(SanitizerResult, const char** text) {
  *text = "words of the fake.";
  return SANITIZER_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
