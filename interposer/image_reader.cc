// Recognises PTX text, cubins and fat binaries by their first bytes and picks the PTX that the
// driver would compile for this device.
#include "interposer/image_reader.h"

#include <cctype>
#include <cstring>
#include <span>
#include <string_view>

#include "ptx/fatbin.h"

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

Image FromFatbin(const ptx::Fatbin& fatbin, ImageTarget target) {
  Image image;
  const FatbinEntry* best = nullptr;
  const FatbinEntry* native = nullptr;
  bool has_ptx = false;
  for (const FatbinEntry& entry : fatbin.entries) {
    has_ptx = has_ptx || entry.kind == FatbinEntry::Kind::kPtx;
    if (Suits(entry, target.arch) && Better(entry, best)) best = &entry;
    if (Runs(entry, target.arch) && Better(entry, native)) native = &entry;
  }
  if (!best) {
    image.description = "fatbin: " + ListEntries(fatbin);
    if (fatbin.relocatable) {
      image.not_checked_reason =
          "no PTX: relocatable device code (nvcc -rdc=true) is linked without "
          "it; compile without -rdc";
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

Image FromCubin(uint32_t arch) {
  Image image;
  image.description = "cubin sm_" + std::to_string(arch);
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
    return FromCubin(CubinArch(bytes));
  }
  const auto* text = static_cast<const char*>(image);
  const size_t length = strnlen(text, readable);
  if (length == readable) return Unreadable("the image is text without an end");
  return FromText({text, length});
}

Image ReadImageFile(const std::string& bytes, ImageTarget target) {
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
    return FromCubin(CubinArch(span.data()));
  }
  return FromText(std::string_view(bytes.data(), strnlen(bytes.data(), bytes.size())));
}

}  // namespace ops_debug::interposer
