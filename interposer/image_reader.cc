// Recognises PTX text, cubins and fat binaries by their first bytes and picks the PTX that the
// driver would compile for this device. Of machine code it asks the store (ptx_store.h) what it was
// made from: that is better than PTX embedded for an older architecture.
#include "interposer/image_reader.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <string_view>

#include "interposer/cubin_identity.h"
#include "interposer/framework_cache.h"
#include "interposer/library_hooks.h"
#include "interposer/unfused_arithmetic.h"
#include "ptx/fatbin.h"
#include "ptx/link.h"

namespace ops_debug::interposer {
namespace {

using ptx::FatbinEntry;

constexpr char kElfMagic[] =
    "\x7f"
    "ELF";
constexpr uint32_t kMinimumElfHeaderBytes = 64;

std::string CompileAdvice(uint32_t arch) {
  const std::string a = arch == 0 ? "XX" : std::to_string(arch);
  return "compile with -gencode arch=compute_" + a + ",code=compute_" + a;
}

// sm of a cubin: e_flags bits 0..7, since CUDA 13's ELF ABI (version 8)
// bits 8..15.
uint32_t CubinArch(const std::byte* elf) {
  uint32_t flags = 0;
  std::memcpy(&flags, elf + 48, sizeof flags);
  const auto abi_version = static_cast<uint8_t>(elf[8]);
  return abi_version >= 8 ? (flags >> 8) & 0xff : flags & 0xff;
}

// Would the driver compile this PTX for the device?
bool Suits(const FatbinEntry& entry, uint32_t arch) {
  if (entry.kind != FatbinEntry::Kind::kPtx) return false;
  if (arch == 0) return true;
  if (entry.arch_specific) return entry.arch == arch;
  if (entry.family_specific) return entry.arch <= arch && entry.arch / 10 == arch / 10;
  return entry.arch <= arch;
}

// Would the driver run this cubin on the device?
bool Runs(const FatbinEntry& entry, uint32_t arch) {
  return entry.kind == FatbinEntry::Kind::kElf && arch != 0 && entry.arch <= arch &&
         entry.arch / 10 == arch / 10 && (!entry.arch_specific || entry.arch == arch);
}

// Of the suitable entries the newest; of equal ones the more specific.
bool Better(const FatbinEntry& a, const FatbinEntry* b) {
  if (!b || a.arch != b->arch) return !b || a.arch > b->arch;
  return (a.arch_specific || a.family_specific) && !(b->arch_specific || b->family_specific);
}

std::string ListEntries(const ptx::Fatbin& fatbin) {
  std::string list;
  for (const FatbinEntry& entry : fatbin.entries) {
    if (!list.empty()) list += ", ";
    list += Describe(entry);
  }
  return list.empty() ? "no entries" : list;
}

// Would the driver run code for `cubin_arch` on a device of `arch`?
bool RunsOn(uint32_t cubin_arch, uint32_t arch) {
  return arch == 0 || (cubin_arch <= arch && cubin_arch / 10 == arch / 10);
}

void UseStored(StoredPtx stored, Image* image) {
  image->ptx =
      stored.options.fuse_multiply_add ? std::move(stored.text) : ForbidFusing(stored.text);
  image->assembled = stored.options;
  image->note = "PTX from " + stored.origin;
  image->not_checked_reason.clear();
}

// The image that the driver picks for this device, if its PTX is in the store.
bool FromStoredElf(const FatbinEntry& entry, Image* image) {
  if (!RemembersPtx()) return false;
  // Most machine code in fat binaries is unknown: do not decompress it to find that out.
  const uint64_t size_bytes = entry.compression == FatbinEntry::Compression::kNone
                                  ? ElfBytes(entry.payload)
                                  : entry.uncompressed_bytes;
  if (!MayHavePtx(size_bytes)) return false;
  ptx::Result<std::string> cubin = ReadPayload(entry);
  if (!cubin.ok()) return false;
  std::optional<StoredPtx> stored =
      FindPtx({reinterpret_cast<const std::byte*>(cubin->data()), cubin->size()});
  if (!stored) return false;
  image->description = "fatbin: " + Describe(entry);
  UseStored(std::move(*stored), image);
  return true;
}

// The newest PTX for this device, null if there is none.
const FatbinEntry* BestPtx(const ptx::Fatbin& fatbin, ImageTarget target) {
  const FatbinEntry* best = nullptr;
  for (const FatbinEntry& entry : fatbin.entries) {
    if (Suits(entry, target.arch) && Better(entry, best)) best = &entry;
  }
  return best;
}

// A program built with -rdc=true: nvlink has made its machine code, but its objects keep their PTX.
// Linked in the same way that is the PTX of the whole. False: `*why` says what is missing.
bool LinkObjects(const ptx::Fatbin& program, ImageTarget target, std::string* ptx,
                 std::string* why) {
  std::vector<std::string> texts;
  for (const void* object : program.objects) {
    ptx::Result<ptx::Fatbin> fatbin = ptx::OpenFatbin(object);
    if (!fatbin.ok()) {
      *why = fatbin.error().message;
      return false;
    }
    const FatbinEntry* best = BestPtx(*fatbin, target);
    if (best == nullptr && fatbin->entries.empty()) continue;  // no device code
    ptx::Result<std::string> text =
        best ? ReadPayload(*best)
             : ptx::Result<std::string>(
                   ptx::Diagnostic{.message = "an object has only " + ListEntries(*fatbin)});
    if (!text.ok()) {
      *why = text.error().message;
      return false;
    }
    texts.push_back(std::move(*text));
  }
  std::vector<ptx::LinkInput> inputs;
  for (const std::string& text : texts)
    inputs.push_back({"object " + std::to_string(inputs.size() + 1), text});
  ptx::Result<std::string> linked = ptx::LinkModules(inputs);
  if (inputs.empty() || !linked.ok()) {
    *why = inputs.empty() ? "its objects are not listed" : linked.error().message;
    return false;
  }
  *ptx = std::move(*linked);
  return true;
}

Image FromFatbin(const ptx::Fatbin& fatbin, ImageTarget target) {
  Image image;
  const FatbinEntry* const best = BestPtx(fatbin, target);
  const FatbinEntry* native = nullptr;
  bool has_ptx = false;
  for (const FatbinEntry& entry : fatbin.entries) {
    has_ptx = has_ptx || entry.kind == FatbinEntry::Kind::kPtx;
    if (Runs(entry, target.arch) && Better(entry, native)) native = &entry;
  }
  if (native && (!best || native->arch > best->arch) && FromStoredElf(*native, &image))
    return image;
  if (!best) {
    image.description = "fatbin: " + ListEntries(fatbin);
    if (fatbin.relocatable) {
      std::string why;
      if (LinkObjects(fatbin, target, &image.ptx.emplace(), &why)) {
        image.note = "PTX linked from the " + std::to_string(fatbin.objects.size()) +
                     " objects of the program (-rdc=true)";
        return image;
      }
      image.ptx.reset();
      image.not_checked_reason = "no PTX: relocatable device code (nvcc -rdc=true), and " + why +
                                 "; " + CompileAdvice(target.arch);
    } else if (has_ptx) {
      image.not_checked_reason = "no PTX for this device (sm_" + std::to_string(target.arch) +
                                 "), only " + ListEntries(fatbin) + "; " +
                                 CompileAdvice(target.arch);
    } else {
      image.not_checked_reason =
          "no PTX: the image holds only machine code; " + CompileAdvice(target.arch);
    }
    return image;
  }
  image.description = "fatbin: " + Describe(*best);
  ptx::Result<std::string> text = ReadPayload(*best);
  if (!text.ok()) {
    image.not_checked_reason = text.error().message + " (" + text.error().hint + ")";
    return image;
  }
  image.ptx = std::move(*text);
  if (native && native->arch > best->arch) {
    image.note = "the embedded PTX is for compute_" + std::to_string(best->arch) +
                 ", the machine code that runs without ops-debug is for sm_" +
                 std::to_string(native->arch) + ": what was checked is other code than that; " +
                 CompileAdvice(native->arch);
  }
  return image;
}

Image Unreadable(std::string what) {
  Image image;
  image.description = "unknown image";
  image.not_checked_reason = std::move(what);
  return image;
}

Image FromCubin(std::span<const std::byte> cubin, ImageTarget target, const std::string& path) {
  Image image;
  const uint32_t arch = CubinArch(cubin.data());
  image.description = "cubin sm_" + std::to_string(arch);
  // A cubin for another device must go on failing.
  if (RemembersPtx() && RunsOn(arch, target.arch)) {
    std::optional<StoredPtx> stored = FindPtx(cubin);
    if (!stored && !path.empty()) stored = PtxBesideCubin(path);
    if (stored) {
      UseStored(std::move(*stored), &image);
      return image;
    }
  }
  image.not_checked_reason =
      "no PTX: a cubin holds only machine code; load "
      "PTX instead, or a fat binary that has it (" +
      CompileAdvice(arch) + ")";
  return image;
}

// Module text may open with white space and comments; the first directive is
// `.version`.
bool LooksLikePtx(std::string_view text) {
  for (;;) {
    while (!text.empty() && (std::isspace(static_cast<unsigned char>(text.front())) != 0))
      text.remove_prefix(1);
    if (text.substr(0, 2) == "//") {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos) return false;
      text.remove_prefix(end);
    } else if (text.substr(0, 2) == "/*") {
      const size_t end = text.find("*/");
      if (end == std::string_view::npos) return false;
      text.remove_prefix(end + 2);
    } else {
      return text.substr(0, 8) == ".version";
    }
  }
}

Image FromText(std::string_view text) {
  if (!LooksLikePtx(text))
    return Unreadable("the image is neither PTX nor a fat binary nor a cubin");
  Image image;
  image.description = "PTX text";
  image.ptx = std::string(text);
  return image;
}

}  // namespace

std::string FindDirective(const std::string& ptx, const char* directive) {
  const size_t at = ptx.find(directive);
  if (at == std::string::npos) return "";
  size_t begin = at + std::strlen(directive);
  while (begin < ptx.size() && (ptx[begin] == ' ' || ptx[begin] == '\t')) begin++;
  size_t end = begin;
  while (end < ptx.size() && std::strchr(" \t\r\n,;/", ptx[end]) == nullptr) end++;
  return ptx.substr(begin, end - begin);
}

Image ReadImage(const void* image, ImageTarget target) {
  const size_t readable = image ? ptx::ReadableBytes(image) : 0;
  if (readable == 0) return Unreadable("the image pointer leads to no readable memory");
  const auto* bytes = static_cast<const std::byte*>(image);
  if (ptx::LooksLikeFatbin(image)) {
    ptx::Result<ptx::Fatbin> fatbin = ptx::OpenFatbin(image);
    if (!fatbin.ok()) return Unreadable(fatbin.error().message + " (" + fatbin.error().hint + ")");
    return FromFatbin(*fatbin, target);
  }
  if (readable >= kMinimumElfHeaderBytes && ptx::StartsWithBytes(bytes, kElfMagic, 4)) {
    return FromCubin({bytes, std::min<size_t>(readable, SIZE_MAX >> 1)}, target, "");
  }
  const auto* text = static_cast<const char*>(image);
  const size_t length = strnlen(text, readable);
  if (length == readable) return Unreadable("the image is text without an end");
  return FromText({text, length});
}

Image ReadImageFile(const std::string& bytes, ImageTarget target, const std::string& path) {
  const std::span<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()),
                                        bytes.size());
  uint32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  if (magic == ptx::kFatbinContainerMagic) {
    ptx::Result<ptx::Fatbin> fatbin = ptx::ReadFatbinFile(span);
    if (!fatbin.ok()) return Unreadable(fatbin.error().message + " (" + fatbin.error().hint + ")");
    return FromFatbin(*fatbin, target);
  }
  if (bytes.size() >= kMinimumElfHeaderBytes && std::memcmp(bytes.data(), kElfMagic, 4) == 0) {
    return FromCubin(span, target, path);
  }
  return FromText(std::string_view(bytes.data(), strnlen(bytes.data(), bytes.size())));
}

}  // namespace ops_debug::interposer
