// The patch refers to its context's data by two variables. In the cubin such a reference is a pair
// of MOV instructions with a relocation each, for the lower and the upper half of the variable's
// address. We apply these relocations ourselves, with the address of what the variable stands for:
// the code then holds the directory's address as a constant, and no load is needed to find it. The
// encoding (128-bit instructions since Volta, a 32-bit immediate in bits 32 to 63) is checked by
// looking at what the relocation would have overwritten.
#include "interposer/sass_patch_image.h"

#include <elf.h>

#include <cstring>
#include <span>

#include "shadow/abi/sass_abi.h"

namespace ops_debug::interposer {
namespace {

#include "shadow/device/sass_patch.inc"

// Relocation types, as observed in the output of nvcc 13 for sm_75 to sm_120.
constexpr uint32_t kLowerHalf = 0x38;  // R_CUDA_ABS32_LO_32
constexpr uint32_t kUpperHalf = 0x39;  // R_CUDA_ABS32_HI_32
constexpr uint32_t kNone = 0;          // R_CUDA_NONE
constexpr uint64_t kImmediateOffset = 4;

template <class T>
T* At(std::span<std::byte> image, uint64_t offset, uint64_t count) {
  if (offset > image.size() || count > (image.size() - offset) / sizeof(T) ||
      offset % alignof(T) != 0) {
    return nullptr;
  }
  return reinterpret_cast<T*>(image.data() + offset);
}

}  // namespace

std::vector<uint64_t> SassPatchCubin(uint32_t arch) {
  const SassPatch* best = nullptr;
  for (const SassPatch& patch : kSassPatches) {
    if (patch.arch <= arch && patch.arch / 10 == arch / 10 && (!best || patch.arch > best->arch))
      best = &patch;
  }
  std::vector<uint64_t> words;
  if (!best) return words;
  words.resize(best->cubin.size() / sizeof(uint64_t));
  std::memcpy(words.data(), best->cubin.data(), best->cubin.size());
  return words;
}

bool BakeAddresses(std::vector<uint64_t>* cubin,
                   const std::vector<std::pair<std::string_view, uint64_t>>& values,
                   std::string* failure) {
  const std::span<std::byte> image = std::as_writable_bytes(std::span(*cubin));
  *failure = "the engine's device code is damaged";
  const auto* header = At<Elf64_Ehdr>(image, 0, 1);
  if (!header) return false;
  const uint32_t count = header->e_shnum;
  const auto* sections = At<Elf64_Shdr>(image, header->e_shoff, count);
  if (!sections) return false;
  std::vector<uint32_t> lower(values.size()), upper(values.size());
  for (uint32_t i = 0; i < count; i++) {
    const Elf64_Shdr& table = sections[i];
    // With or without addends: nvcc writes the former for sm_90 and later.
    const bool with_addends = table.sh_type == SHT_RELA;
    if ((!with_addends && table.sh_type != SHT_REL) || table.sh_info >= count ||
        table.sh_link >= count) {
      continue;
    }
    const uint64_t entry_bytes = with_addends ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    const Elf64_Shdr& target = sections[table.sh_info];
    const Elf64_Shdr& symbols = sections[table.sh_link];
    if (symbols.sh_link >= count) return false;
    const Elf64_Shdr& strings = sections[symbols.sh_link];
    const uint64_t symbol_count = symbols.sh_size / sizeof(Elf64_Sym);
    const auto* symbol = At<Elf64_Sym>(image, symbols.sh_offset, symbol_count);
    const char* text = At<char>(image, strings.sh_offset, strings.sh_size);
    if (!symbol || !text) return false;
    for (uint64_t k = 0; k < table.sh_size / entry_bytes; k++) {
      // Elf64_Rela begins with the members of Elf64_Rel.
      auto* relocation = At<Elf64_Rel>(image, table.sh_offset + k * entry_bytes, 1);
      if (!relocation || !At<std::byte>(image, table.sh_offset + k * entry_bytes, entry_bytes))
        return false;
      const uint64_t index = ELF64_R_SYM(relocation->r_info);
      if (index >= symbol_count || symbol[index].st_name >= strings.sh_size) return false;
      const std::string_view name(
          text + symbol[index].st_name,
          strnlen(text + symbol[index].st_name, strings.sh_size - symbol[index].st_name));
      for (size_t v = 0; v < values.size(); v++) {
        if (values[v].first != name) continue;
        const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation->r_info));
        if (type != kLowerHalf && type != kUpperHalf) {
          *failure = "the engine's device code refers to " + std::string(name) +
                     " by a relocation of type " + std::to_string(type);
          return false;
        }
        auto* immediate =
            At<uint32_t>(image, target.sh_offset + relocation->r_offset + kImmediateOffset, 1);
        if (!immediate || *immediate != 0) return false;
        if (with_addends && reinterpret_cast<Elf64_Rela*>(relocation)->r_addend != 0) return false;
        *immediate =
            static_cast<uint32_t>(type == kLowerHalf ? values[v].second : values[v].second >> 32);
        relocation->r_info = ELF64_R_INFO(index, kNone);
        ++(type == kLowerHalf ? lower : upper)[v];
      }
    }
  }
  for (size_t v = 0; v < values.size(); v++) {
    if (lower[v] == 0 || upper[v] == 0) return false;
  }
  failure->clear();
  return true;
}

std::vector<uint64_t> MakeSassPatch(uint32_t arch, const SassPatchAddresses& addresses,
                                    std::string* failure) {
  std::vector<uint64_t> cubin = SassPatchCubin(arch);
  if (cubin.empty()) {
    *failure = "ops-debug has no machine code for a device of compute capability " +
               std::to_string(arch / 10) + "." + std::to_string(arch % 10);
    return cubin;
  }
  if (!BakeAddresses(&cubin,
                     {{shadow::kSassDirectorySymbol, addresses.directory},
                      {shadow::kSassDirectoryAgainSymbol, addresses.directory},
                      {shadow::kSassChannelSymbol, addresses.channel}},
                     failure)) {
    cubin.clear();
  }
  return cubin;
}

}  // namespace ops_debug::interposer
