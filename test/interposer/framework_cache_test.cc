// Triton's and Inductor's caches, laid out as they do it.
#include "interposer/framework_cache.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "ptx_store_fixture.h"

namespace ops_debug::interposer {
namespace {

namespace fs = std::filesystem;

constexpr char kJson[] =
    R"({"hash": "ab", "num_warps": 4, "enable_fp_fusion": true, "ptx_options": null, "name": "k"})";

void AddKernel(const fs::path& folder, const std::string& code, const std::string& ptx,
               const std::string& json = kJson) {
  WriteFile(folder / "kernel.json", json);
  WriteFile(folder / "kernel.ttir", "module {}");
  WriteFile(folder / "kernel.ptx", ptx);
  WriteFile(folder / "kernel.cubin", MakeCubin(code));
}

std::string Found(FrameworkCaches& caches, const TemporaryFolder& root, const std::string& code) {
  const auto ptx = caches.Find(Bytes(MakeCubin(code)), {root.path()});
  return ptx ? ptx->text : "";
}

}  // namespace

TEST_CASE("a kernel in Triton's cache is found by its cubin's bytes") {
  TemporaryFolder root;
  AddKernel(root / "AAAA", "code 1", "ptx 1");
  AddKernel(root / "BBBB", "code 2", "ptx 2");
  FrameworkCaches caches;
  CHECK(Found(caches, root, "code 1") == "ptx 1");
  CHECK(Found(caches, root, "code 2") == "ptx 2");
  CHECK(Found(caches, root, "code 3").empty());  // same size, other bytes
  CHECK(Found(caches, root, "something else").empty());
}

TEST_CASE("kernels that are compiled later are found") {
  TemporaryFolder root;
  FrameworkCaches caches;
  CHECK(Found(caches, root, "code 1").empty());
  AddKernel(root / "AAAA", "code 1", "ptx 1");
  CHECK(Found(caches, root, "code 1") == "ptx 1");
  AddKernel(root / "BBBB", "code 2", "ptx 2");
  CHECK(Found(caches, root, "code 2") == "ptx 2");
}

TEST_CASE("a folder that was seen half written is looked at again") {
  TemporaryFolder root;
  WriteFile(root / "AAAA/kernel.ptx", "ptx 1");
  FrameworkCaches caches;
  CHECK(Found(caches, root, "code 1").empty());
  AddKernel(root / "AAAA", "code 1", "ptx 1");
  CHECK(Found(caches, root, "code 1") == "ptx 1");
}

TEST_CASE("Inductor's folders are one level deeper") {
  TemporaryFolder root;
  AddKernel(root / "0/CCCC", "code 1", "ptx 1");
  FrameworkCaches caches;
  CHECK(Found(caches, root, "code 1") == "ptx 1");
}

TEST_CASE("Triton's options for ptxas are taken from the kernel's description") {
  TemporaryFolder root;
  AddKernel(
      root / "AAAA", "code 1", "ptx 1",
      R"({"num_warps": 4, "enable_fp_fusion": false, "ptx_options": "-O1 -maxrregcount=64"})");
  FrameworkCaches caches;
  const auto ptx = caches.Find(Bytes(MakeCubin("code 1")), {root.path()});
  REQUIRE(ptx);
  CHECK_FALSE(ptx->options.fuse_multiply_add);
  CHECK(ptx->options.optimization == 1);
  CHECK(ptx->options.max_registers == 64);
}

TEST_CASE("PTX beside a cubin that Triton did not write is not trusted") {
  TemporaryFolder root;
  WriteFile(root / "AAAA/kernel.cubin", MakeCubin("code 1"));
  WriteFile(root / "AAAA/kernel.ptx", "of another day");
  FrameworkCaches caches;
  CHECK(Found(caches, root, "code 1").empty());
  CHECK_FALSE(PtxBesideCubin((root / "AAAA/kernel.cubin").string()));
}

TEST_CASE("the index is bounded") {
  TemporaryFolder root;
  for (int i = 0; i < 8; ++i)
    AddKernel(root / std::to_string(i), "code " + std::to_string(i), "ptx");
  FrameworkCaches caches(4);  // the root and three kernels
  int found = 0;
  for (int i = 0; i < 8; ++i)
    found += Found(caches, root, "code " + std::to_string(i)).empty() ? 0 : 1;
  CHECK(found == 3);
}

TEST_CASE("the places are Triton's and Inductor's own") {
  setenv("HOME", "/home/a", 1);
  setenv("TRITON_CACHE_DIR", "/cache/triton", 1);
  setenv("TORCHINDUCTOR_CACHE_DIR", "/cache/inductor", 1);
  CHECK(FrameworkCacheRoots() == std::vector<std::string>{"/cache/triton", "/home/a/.triton/cache",
                                                          "/cache/inductor/triton"});
  unsetenv("TRITON_CACHE_DIR");
  unsetenv("TORCHINDUCTOR_CACHE_DIR");
  unsetenv("TMPDIR");
  setenv("LOGNAME", "a:b", 1);
  CHECK(FrameworkCacheRoots() ==
        std::vector<std::string>{"/home/a/.triton/cache", "/tmp/torchinductor_a_b/triton"});
}

}  // namespace ops_debug::interposer
