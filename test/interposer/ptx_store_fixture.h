// A folder that is gone after the test, and the smallest thing that passes for a cubin.
#pragma once

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

namespace ops_debug::interposer {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ptx-store-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// An ELF file with one section that holds `code`.
inline std::string MakeCubin(const std::string& code) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_flags = 90;  // sm_90
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  Elf64_Shdr sections[2]{};
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof header + sizeof sections;
  sections[1].sh_size = code.size();
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image.append(reinterpret_cast<const char*>(sections), sizeof sections);
  return image + code;
}

inline std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ops_debug::interposer
