// Finds the PTX in an image. The CPU device runs PTX only: of a fat binary it takes the entry for
// the newest architecture that the model can still run, as a GPU's just-in-time compiler does;
// machine code beside it is ignored. Objects of separate compilation are linked.
#include "emulator/driver/image.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "ptx/fatbin.h"
#include "ptx/link.h"

namespace ops_debug::emulator {
namespace {

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};

std::string HowToGetPtx(const DeviceModel& model) {
  const std::string arch =
      std::to_string(model.compute_major) + std::to_string(model.compute_minor);
  return "; compile it with `-gencode arch=compute_" + arch + ",code=compute_" + arch +
         "` so that it carries PTX for this device";
}

// The entry for the newest architecture that `model` can run; nullptr if none. `*found` lists all.
const ptx::FatbinEntry* BestPtx(const ptx::Fatbin& fatbin, const DeviceModel& model,
                                std::string* found) {
  const uint32_t limit = model.compute_major * 10 + model.compute_minor;
  const ptx::FatbinEntry* best = nullptr;
  for (const ptx::FatbinEntry& entry : fatbin.entries) {
    *found += (found->empty() ? "" : ", ") + ptx::Describe(entry);
    if (entry.kind != ptx::FatbinEntry::Kind::kPtx || entry.arch > limit) continue;
    // compute_90a runs on 9.0 alone.
    if (entry.arch_specific && entry.arch != limit) continue;
    if (best == nullptr || entry.arch > best->arch) best = &entry;
  }
  return best;
}

CUresult FromFatbin(const ptx::Fatbin& fatbin, const DeviceModel& model, std::string* ptx,
                    std::string* why) {
  std::string found;
  const ptx::FatbinEntry* best = BestPtx(fatbin, model, &found);
  if (best == nullptr) {
    *why = "no PTX that compute capability " + std::to_string(model.compute_major) + "." +
           std::to_string(model.compute_minor) + " can run in a fat binary with " +
           (found.empty() ? "no entries" : found) + HowToGetPtx(model);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  ptx::Result<std::string> payload = ptx::ReadPayload(*best);
  if (!payload.ok()) {
    *why = payload.error().ToString();
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *ptx = std::move(payload.value());
  return CUDA_SUCCESS;
}

// A program built with -rdc=true: the wrapper lists the fat binaries of its objects, unlinked. The
// driver links their PTX (fatbinary_section.h of the toolkit: version 2).
CUresult FromRelocatable(const void* image, const DeviceModel& model, std::string* ptx,
                         std::string* why) {
  struct {
    uint32_t magic, version;
    const void* container;
    const void* const* relocatable;
  } wrapper;
  std::memcpy(&wrapper, image, sizeof(wrapper));
  std::vector<std::string> texts;
  for (const void* const* object = wrapper.relocatable;
       ptx::ReadableBytes(object) >= sizeof(void*) && *object != nullptr; ++object) {
    const ptx::Result<ptx::Fatbin> fatbin = ptx::OpenFatbin(*object);
    if (!fatbin.ok()) {
      *why = fatbin.error().ToString();
      return CUDA_ERROR_INVALID_IMAGE;
    }
    // Objects without device code, such as the device run-time's, have nothing to give.
    std::string found;
    const ptx::FatbinEntry* best = BestPtx(fatbin.value(), model, &found);
    if (best == nullptr) continue;
    ptx::Result<std::string> payload = ptx::ReadPayload(*best);
    if (!payload.ok()) {
      *why = payload.error().ToString();
      return CUDA_ERROR_INVALID_IMAGE;
    }
    texts.push_back(std::move(payload.value()));
  }
  if (texts.empty()) {
    *why = "the program was built with -rdc=true and its objects carry no PTX" + HowToGetPtx(model);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  std::vector<ptx::LinkInput> inputs;
  for (size_t i = 0; i < texts.size(); ++i)
    inputs.push_back({"object " + std::to_string(i + 1) + " of the program", texts[i]});
  ptx::Result<std::string> linked = ptx::LinkModules(inputs);
  if (!linked.ok()) {
    *why = "cannot link the program's device code: " + linked.error().message;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *ptx = std::move(linked.value());
  return CUDA_SUCCESS;
}

CUresult FromCubin(const DeviceModel& model, std::string* why) {
  *why = "the image is a cubin: machine code that a CPU cannot run" + HowToGetPtx(model);
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

// PTX begins with a comment or a directive; anything else is not text for us.
bool LooksLikePtx(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  return start != std::string_view::npos && (text[start] == '/' || text[start] == '.');
}

CUresult FromText(std::string_view text, std::string* ptx, std::string* why) {
  if (!LooksLikePtx(text)) {
    *why = "the image is neither PTX text nor a fat binary nor a cubin";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  ptx->assign(text);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ReadImage(const void* image, const DeviceModel& model, std::string* ptx,
                   std::string* why) {
  const size_t readable = ptx::ReadableBytes(image);
  if (readable < sizeof(kElfMagic)) {
    *why = "the image's address cannot be read";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (ptx::LooksLikeFatbin(image)) {
    const ptx::Result<ptx::Fatbin> fatbin = ptx::OpenFatbin(image);
    if (!fatbin.ok()) {
      *why = fatbin.error().ToString();
      return CUDA_ERROR_INVALID_IMAGE;
    }
    if (fatbin.value().relocatable) return FromRelocatable(image, model, ptx, why);
    return FromFatbin(fatbin.value(), model, ptx, why);
  }
  if (std::memcmp(image, kElfMagic, sizeof(kElfMagic)) == 0) return FromCubin(model, why);
  const char* text = static_cast<const char*>(image);
  const size_t length = strnlen(text, readable);
  if (length == readable) {
    *why = "PTX text without a final NUL";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  return FromText(std::string_view(text, length), ptx, why);
}

CUresult ReadImageFile(const char* path, const DeviceModel& model, std::string* ptx,
                       std::string* why) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    *why = std::string(path) + ": cannot be opened";
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() >= sizeof(kElfMagic)) {
    if (std::memcmp(bytes.data(), kElfMagic, sizeof(kElfMagic)) == 0) return FromCubin(model, why);
    uint32_t magic = 0;
    std::memcpy(&magic, bytes.data(), sizeof(magic));
    if (magic == ptx::kFatbinContainerMagic) {
      const ptx::Result<ptx::Fatbin> fatbin = ptx::ReadFatbinFile(std::as_bytes(std::span(bytes)));
      if (!fatbin.ok()) {
        *why = std::string(path) + ": " + fatbin.error().ToString();
        return CUDA_ERROR_INVALID_IMAGE;
      }
      return FromFatbin(fatbin.value(), model, ptx, why);
    }
  }
  const size_t length = strnlen(bytes.data(), bytes.size());
  return FromText(std::string_view(bytes.data(), length), ptx, why);
}

}  // namespace ops_debug::emulator
