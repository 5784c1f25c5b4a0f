// Files of tensors made byte by byte, for the tests of their readers.
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ops_debug::proto {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ops-debug-tensors-" + std::to_string(getpid()) + "-" + std::to_string(++number));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::filesystem::remove(path_ /
                            name);  // some file systems wait for the disk when a file is cut
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

// `value` as `bytes` little-endian bytes.
inline std::string Little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string NpyWithHeader(const std::string& header, std::string_view elements,
                                 int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         Little(header.size(), version == 1 ? 2 : 4) + header + std::string(elements);
}

inline std::string Npy(const std::string& descr, const std::string& shape,
                       std::string_view elements, bool fortran_order = false) {
  return NpyWithHeader("{'descr': '" + descr + "', 'fortran_order': " +
                           (fortran_order ? "True" : "False") + ", 'shape': (" + shape + "), }\n",
                       elements);
}

inline std::string Safetensors(const std::string& header, std::string_view elements) {
  return Little(header.size(), 8) + header + std::string(elements);
}

inline std::string Deflated(const std::string& bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// As numpy.savez and savez_compressed write it, or with the sizes and offsets in ZIP64 records.
inline std::string Zip(const std::vector<std::pair<std::string, std::string>>& members,
                       bool deflated, bool zip64 = false) {
  std::string file, directory;
  for (const auto& [name, bytes] : members) {
    const std::string content = deflated ? Deflated(bytes) : bytes;
    const auto checksum = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    const std::string method = Little(deflated ? 8 : 0, 2);
    const size_t local_at = file.size();
    const auto narrow = [&](uint64_t value) { return Little(zip64 ? 0xffffffff : value, 4); };
    const std::string sizes = narrow(content.size()) + narrow(bytes.size());
    const std::string record = zip64 ? Little(1, 2) + Little(24, 2) + Little(bytes.size(), 8) +
                                           Little(content.size(), 8) + Little(local_at, 8)
                                     : "";
    file += Little(0x04034b50, 4) + Little(20, 2) + Little(0, 2) + method + Little(0, 4) +
            Little(checksum, 4) + sizes + Little(name.size(), 2) + Little(0, 2) + name + content;
    directory += Little(0x02014b50, 4) + Little(20, 2) + Little(20, 2) + Little(0, 2) + method +
                 Little(0, 4) + Little(checksum, 4) + sizes + Little(name.size(), 2) +
                 Little(record.size(), 2) + Little(0, 2) + Little(0, 2) + Little(0, 2) +
                 Little(0, 4) + narrow(local_at) + name + record;
  }
  const size_t directory_at = file.size();
  file += directory;
  if (zip64) {
    const size_t end_at = file.size();
    file += Little(0x06064b50, 4) + Little(44, 8) + Little(45, 2) + Little(45, 2) + Little(0, 4) +
            Little(0, 4) + Little(members.size(), 8) + Little(members.size(), 8) +
            Little(directory.size(), 8) + Little(directory_at, 8);
    file += Little(0x07064b50, 4) + Little(0, 4) + Little(end_at, 8) + Little(1, 4);
  }
  const uint64_t count = zip64 ? 0xffff : members.size();
  return file + Little(0x06054b50, 4) + Little(0, 4) + Little(count, 2) + Little(count, 2) +
         Little(zip64 ? 0xffffffff : directory.size(), 4) +
         Little(zip64 ? 0xffffffff : directory_at, 4) + Little(0, 2);
}

}  // namespace ops_debug::proto
