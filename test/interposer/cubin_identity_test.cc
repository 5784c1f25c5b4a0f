// The size and hash that name a cubin.
#include "interposer/cubin_identity.h"

#include <catch2/catch.hpp>

#include "ptx_store_fixture.h"

namespace ops_debug::interposer {

TEST_CASE("a cubin is identified by its own bytes, not by those behind it") {
  const std::string cubin = MakeCubin("machine code");
  const std::string padded = cubin + std::string(100, '\0');
  CHECK(ElfBytes(Bytes(cubin)) == cubin.size());
  CHECK(ElfBytes(Bytes(padded)) == cubin.size());
  CHECK(IdentifyCubin(Bytes(padded)) == IdentifyCubin(Bytes(cubin)));
}

TEST_CASE("one byte makes another cubin") {
  CHECK(IdentifyCubin(Bytes(MakeCubin("aaaa"))) != IdentifyCubin(Bytes(MakeCubin("aaab"))));
}

TEST_CASE("what is cut off is no cubin") {
  const std::string cubin = MakeCubin("machine code");
  for (size_t length = 0; length < cubin.size(); ++length) {
    CAPTURE(length);
    const std::string part = cubin.substr(0, length);
    CHECK(ElfBytes(Bytes(part)) == 0);
    CHECK_FALSE(IdentifyCubin(Bytes(part)));
  }
}

TEST_CASE("headers that claim more than there is are refused, whatever they claim") {
  for (size_t field = 32; field < sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr); ++field) {
    std::string cubin = MakeCubin("machine code");
    cubin[field] = '\xff';
    CAPTURE(field);
    CHECK(ElfBytes(Bytes(cubin)) <= cubin.size());
  }
}

}  // namespace ops_debug::interposer
