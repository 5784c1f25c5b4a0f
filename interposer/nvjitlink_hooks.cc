// nvJitLink: a link of PTX alone, done in the same way on text, gives the PTX of the cubin. A link
// of LTO-IR alone is done a second time for PTX (option -ptx); other links mix code that has none.
//
// The library exports each function twice: by its plain name, for dlsym, and with the version of
// the header that a program was compiled with.
#include <nvJitLink.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "interposer/assembler_command.h"
#include "interposer/files.h"
#include "interposer/library_hooks.h"
#include "interposer/ptx_store.h"

namespace ops_debug::interposer {
namespace {

constexpr size_t kMaxInputBytes = 64 << 20;

struct LinkInput {
  nvJitLinkInputType type;
  std::string bytes;
};

struct Link {
  std::vector<std::string> options;
  std::vector<LinkInput> inputs;
  size_t input_bytes = 0;
  bool complete_record = true;  // `inputs` are all that was added
  size_t cubin_bytes = 0;
};
using LinkPointer = std::shared_ptr<Link>;

struct Links {
  std::mutex mutex;
  std::unordered_map<nvJitLinkHandle, LinkPointer> links;
};
Links& TheLinks() {
  static Links* const links = new Links;
  return *links;
}

LinkPointer FindLink(nvJitLinkHandle handle) {
  Links& links = TheLinks();
  std::lock_guard lock(links.mutex);
  const auto found = links.links.find(handle);
  return found == links.links.end() ? nullptr : found->second;
}

bool IsPtx(const LinkInput& input) {
  return input.type == NVJITLINK_INPUT_PTX ||
         (input.type == NVJITLINK_INPUT_ANY && input.bytes.find(".version") < 4096 &&
          input.bytes.find(".target") != std::string::npos);
}

void AddInput(nvJitLinkHandle handle, nvJitLinkInputType type, std::string bytes) {
  const LinkPointer link = FindLink(handle);
  if (!link) return;
  link->input_bytes += bytes.size();
  if (link->input_bytes > kMaxInputBytes) {
    link->complete_record = false;
    link->inputs.clear();
  } else {
    link->inputs.push_back({type, std::move(bytes)});
  }
}

AssemblerOptions ReadOptions(const Link& link) {
  AssemblerOptions options;
  std::vector<std::string> arguments;
  for (const std::string& option : link.options) {
    if (option.starts_with("-Xptxas=")) {
      arguments.push_back(option.substr(8));
    } else if (option.starts_with("-maxrregcount") || option.starts_with("-O") || option == "-g") {
      arguments.push_back(option);
    }
  }
  ApplyAssemblerArguments(arguments, &options);
  return options;
}

// The functions of the copy that the program uses.
template <class Real>
class LinkAgain {
 public:
  explicit LinkAgain(const Real& real) : real_(real) {}

  // The linked PTX of LTO-IR inputs; empty if the library refuses.
  std::string Ptx(const Link& link) {
    const auto create = Get<decltype(&::nvJitLinkCreate)>("nvJitLinkCreate");
    const auto add = Get<decltype(&::nvJitLinkAddData)>("nvJitLinkAddData");
    const auto complete = Get<decltype(&::nvJitLinkComplete)>("nvJitLinkComplete");
    const auto size = Get<decltype(&::nvJitLinkGetLinkedPtxSize)>("nvJitLinkGetLinkedPtxSize");
    const auto get = Get<decltype(&::nvJitLinkGetLinkedPtx)>("nvJitLinkGetLinkedPtx");
    const auto destroy = Get<decltype(&::nvJitLinkDestroy)>("nvJitLinkDestroy");
    if (!create || !add || !complete || !size || !get || !destroy) return "";
    std::vector<const char*> options;
    for (const std::string& option : link.options) options.push_back(option.c_str());
    options.push_back("-ptx");
    nvJitLinkHandle handle = nullptr;
    if (create(&handle, static_cast<uint32_t>(options.size()), options.data()) != NVJITLINK_SUCCESS)
      return "";
    bool good = true;
    for (const LinkInput& input : link.inputs) {
      good = good && add(handle, input.type, input.bytes.data(), input.bytes.size(), "input") ==
                         NVJITLINK_SUCCESS;
    }
    size_t bytes = 0;
    good =
        good && complete(handle) == NVJITLINK_SUCCESS && size(handle, &bytes) == NVJITLINK_SUCCESS;
    std::string ptx(good ? bytes : 0, '\0');
    if (ptx.empty() || get(handle, ptx.data()) != NVJITLINK_SUCCESS) ptx.clear();
    ptx.resize(std::min(ptx.find('\0'), ptx.size()));
    destroy(&handle);
    return ptx;
  }

 private:
  template <class Signature>
  Signature Get(const char* name) {
    return real_.template Sibling<Signature>(name);
  }
  const Real& real_;
};

}  // namespace

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkCreate, NVJITLINK_ERROR_INTERNAL, nvJitLinkHandle* handle,
                       uint32_t count, const char** options) {
  const nvJitLinkResult result = real(handle, count, options);
  if (result == NVJITLINK_SUCCESS) {
    KeepingBooks([&] {
      auto link = std::make_shared<Link>();
      for (uint32_t i = 0; i < count; ++i) link->options.emplace_back(options[i]);
      Links& links = TheLinks();
      std::lock_guard lock(links.mutex);
      links.links[*handle] = std::move(link);
    });
  }
  return result;
}

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkDestroy, NVJITLINK_ERROR_INTERNAL, nvJitLinkHandle* handle) {
  KeepingBooks([&] {
    Links& links = TheLinks();
    std::lock_guard lock(links.mutex);
    if (handle != nullptr) links.links.erase(*handle);
  });
  return real(handle);
}

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkAddData, NVJITLINK_ERROR_INTERNAL, nvJitLinkHandle handle,
                       nvJitLinkInputType type, const void* data, size_t size, const char* name) {
  const nvJitLinkResult result = real(handle, type, data, size, name);
  if (result == NVJITLINK_SUCCESS) {
    KeepingBooks([&] {
      AddInput(handle, type,
               std::string(static_cast<const char*>(data), std::min(size, kMaxInputBytes + 1)));
    });
  }
  return result;
}

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkAddFile, NVJITLINK_ERROR_INTERNAL, nvJitLinkHandle handle,
                       nvJitLinkInputType type, const char* file_name) {
  const nvJitLinkResult result = real(handle, type, file_name);
  if (result == NVJITLINK_SUCCESS) {
    KeepingBooks([&] {
      std::string bytes;
      if (ReadWholeFile(file_name, &bytes)) {
        AddInput(handle, type, std::move(bytes));
      } else if (const LinkPointer link = FindLink(handle)) {
        link->complete_record = false;
      }
    });
  }
  return result;
}

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkGetLinkedCubinSize, NVJITLINK_ERROR_INTERNAL,
                       nvJitLinkHandle handle, size_t* size) {
  const nvJitLinkResult result = real(handle, size);
  if (result == NVJITLINK_SUCCESS) {
    KeepingBooks([&] {
      if (const LinkPointer link = FindLink(handle)) link->cubin_bytes = *size;
    });
  }
  return result;
}

OPS_DEBUG_LIBRARY_HOOK(nvJitLinkGetLinkedCubin, NVJITLINK_ERROR_INTERNAL, nvJitLinkHandle handle,
                       void* cubin) {
  const nvJitLinkResult result = real(handle, cubin);
  if (result != NVJITLINK_SUCCESS) return result;
  LinkPointer link;
  KeepingBooks([&] { link = FindLink(handle); });
  if (!link || !link->complete_record || link->inputs.empty() || link->cubin_bytes == 0)
    return result;
  std::string ptx;
  try {
    if (std::ranges::all_of(link->inputs, IsPtx)) {
      std::vector<std::string> texts;
      for (const LinkInput& input : link->inputs)
        texts.emplace_back(input.bytes, 0, std::min(input.bytes.find('\0'), input.bytes.size()));
      ptx = LinkTexts(texts);
    } else if (std::ranges::all_of(link->inputs, [](const LinkInput& input) {
                 return input.type == NVJITLINK_INPUT_LTOIR;
               })) {
      // Outside KeepingBooks: this compiles, and a fork must not wait for it.
      ptx = LinkAgain(real).Ptx(*link);
    }
  } catch (...) {
    return result;
  }
  KeepingBooks([&] {
    StoredPtx stored;
    stored.text = std::move(ptx);
    stored.options = ReadOptions(*link);
    stored.origin = "nvJitLink";
    RememberPtx({static_cast<const std::byte*>(cubin), link->cubin_bytes}, std::move(stored));
  });
  return result;
}

#define OPS_DEBUG_NVJITLINK_VERSION(version)                                                      \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkCreate_##version, nvJitLinkCreate,                         \
                            NVJITLINK_ERROR_INTERNAL)                                             \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkDestroy_##version, nvJitLinkDestroy,                       \
                            NVJITLINK_ERROR_INTERNAL)                                             \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkAddData_##version, nvJitLinkAddData,                       \
                            NVJITLINK_ERROR_INTERNAL)                                             \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkAddFile_##version, nvJitLinkAddFile,                       \
                            NVJITLINK_ERROR_INTERNAL)                                             \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkGetLinkedCubinSize_##version, nvJitLinkGetLinkedCubinSize, \
                            NVJITLINK_ERROR_INTERNAL)                                             \
  OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkGetLinkedCubin_##version, nvJitLinkGetLinkedCubin,         \
                            NVJITLINK_ERROR_INTERNAL)

OPS_DEBUG_NVJITLINK_VERSION(12_0)
OPS_DEBUG_NVJITLINK_VERSION(12_1)
OPS_DEBUG_NVJITLINK_VERSION(12_2)
OPS_DEBUG_NVJITLINK_VERSION(12_3)
OPS_DEBUG_NVJITLINK_VERSION(12_4)
OPS_DEBUG_NVJITLINK_VERSION(12_5)
OPS_DEBUG_NVJITLINK_VERSION(12_6)
OPS_DEBUG_NVJITLINK_VERSION(12_7)
OPS_DEBUG_NVJITLINK_VERSION(12_8)
OPS_DEBUG_NVJITLINK_VERSION(12_9)
OPS_DEBUG_NVJITLINK_VERSION(13_0)
OPS_DEBUG_NVJITLINK_VERSION(13_1)
OPS_DEBUG_NVJITLINK_VERSION(13_2)
OPS_DEBUG_NVJITLINK_VERSION(13_3)

}  // namespace ops_debug::interposer
