// The folder of the store: found again, bounded, and never misled by what others leave in it.
#include "interposer/ptx_folder.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "ptx_store_fixture.h"

namespace ops_debug::interposer {
namespace {

namespace fs = std::filesystem;

CubinIdentity Cubin(const std::string& code) { return *IdentifyCubin(Bytes(MakeCubin(code))); }

StoredPtx Ptx(const std::string& text) {
  return {.text = text,
          .options = {.fuse_multiply_add = false, .max_registers = 40, .optimization = 2},
          .origin = "ptxas"};
}

std::vector<fs::path> Files(const TemporaryFolder& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path())) files.push_back(entry.path());
  return files;
}

void Age(const fs::path& path, std::chrono::hours age) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

}  // namespace

TEST_CASE("what one process adds another finds, with its options") {
  TemporaryFolder folder;
  PtxFolder(folder.path()).Add(Cubin("a"), Ptx("text of a"));
  PtxFolder other(folder.path());
  const auto found = other.Find(Cubin("a"));
  REQUIRE(found);
  CHECK(found->text == "text of a");
  CHECK(found->origin == "ptxas");
  CHECK_FALSE(found->options.fuse_multiply_add);
  CHECK(found->options.max_registers == 40);
  CHECK(found->options.optimization == 2);
  CHECK_FALSE(other.Find(Cubin("b")));
}

TEST_CASE("the folder is made with its parents, for this user only") {
  TemporaryFolder folder;
  PtxFolder store((folder / "cache/ops-debug/ptx").string());
  store.Prepare();
  CHECK(store.obstacle().empty());
  CHECK((fs::status(folder / "cache/ops-debug/ptx").permissions() & fs::perms(077)) ==
        fs::perms::none);
}

TEST_CASE("sizes that the folder holds are known, new ones soon") {
  TemporaryFolder folder;
  PtxFolder store(folder.path());
  CHECK_FALSE(store.MayHold(Cubin("a").size_bytes));
  PtxFolder(folder.path()).Add(Cubin("a"), Ptx("x"));
  CHECK(store.MayHold(Cubin("a").size_bytes));
  CHECK_FALSE(store.MayHold(Cubin("ab").size_bytes));
}

TEST_CASE("damaged entries are passed over and make room for whole ones") {
  TemporaryFolder folder;
  PtxFolder store(folder.path());
  store.Add(Cubin("a"), Ptx("a text of some length"));
  const fs::path file = Files(folder).at(0);
  const std::string whole = ReadFile(file);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    CAPTURE(i);
    CHECK_FALSE(DecodeStoredPtx(damaged));
    CHECK_FALSE(DecodeStoredPtx(whole.substr(0, i)));
  }
  WriteFile(file, whole.substr(0, whole.size() / 2));
  CHECK_FALSE(store.Find(Cubin("a")));
  CHECK_FALSE(fs::exists(file));
  store.Add(Cubin("a"), Ptx("again"));
  CHECK(store.Find(Cubin("a"))->text == "again");
}

TEST_CASE("beyond the bound the entries that were unused for longest go") {
  TemporaryFolder folder;
  constexpr uint64_t kLimit = 64 << 10;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "kernel " + std::to_string(i);
    // Each in a process of its own, as assemblers are.
    PtxFolder(folder.path(), kLimit).Add(Cubin(name), Ptx(std::string(4000, 'x')));
    const fs::path file = folder / (Cubin(name).ToString() + ".ptx");
    if (fs::exists(file)) Age(file, std::chrono::hours(100 - i));
    // The first one is used all the time.
    CHECK(PtxFolder(folder.path(), kLimit).Find(Cubin("kernel 0")));
  }
  CHECK(Files(folder).size() * 4096 <= kLimit);
  CHECK(Files(folder).size() >= 8);
  PtxFolder store(folder.path(), kLimit);
  CHECK(store.Find(Cubin("kernel 19")));
  CHECK(store.Find(Cubin("kernel 18")));
  CHECK_FALSE(store.Find(Cubin("kernel 1")));
}

TEST_CASE("the number of entries is bounded, too") {
  TemporaryFolder folder;
  for (int i = 0; i < 12; ++i)
    PtxFolder(folder.path(), 1 << 20, 8).Add(Cubin(std::to_string(i)), Ptx("x"));
  CHECK(Files(folder).size() <= 8);
}

TEST_CASE("foreign files stay, and what killed processes left goes") {
  TemporaryFolder folder;
  WriteFile(folder / "notes.txt", "mine");
  WriteFile(folder / ".partial-1-0", "half");
  WriteFile(folder / ".partial-2-0", "being written");
  Age(folder / ".partial-1-0", std::chrono::hours(2));
  PtxFolder(folder.path(), 1).Add(Cubin("a"), Ptx("x"));
  CHECK(fs::exists(folder / "notes.txt"));
  CHECK_FALSE(fs::exists(folder / ".partial-1-0"));
  CHECK(fs::exists(folder / ".partial-2-0"));
}

TEST_CASE("a place that cannot be written is named, and holds nothing") {
  TemporaryFolder folder;
  WriteFile(folder / "file", "");
  PtxFolder store((folder / "file/ptx").string());
  store.Prepare();
  CHECK(store.obstacle().find("cannot create") == 0);
  CHECK(store.obstacle().find("Not a directory") != std::string::npos);
  store.Add(Cubin("a"), Ptx("x"));
  CHECK_FALSE(store.Find(Cubin("a")));
  CHECK_FALSE(store.MayHold(Cubin("a").size_bytes));
}

TEST_CASE("a full disk is named") {
  // Whatever is written there fails with ENOSPC.
  if (!fs::exists("/dev/full")) return;
  TemporaryFolder folder;
  PtxFolder store(folder.path());
  store.Prepare();
  for (int i = 0; i < 64; ++i) {
    fs::create_symlink("/dev/full",
                       folder / (".partial-" + std::to_string(getpid()) + "-" + std::to_string(i)));
  }
  store.Add(Cubin("a"), Ptx("x"));
  CHECK(store.obstacle().find("No space left on device") != std::string::npos);
  CHECK_FALSE(store.Find(Cubin("a")));
}

TEST_CASE("no folder: nothing happens") {
  PtxFolder store("");
  store.Prepare();
  store.Add(Cubin("a"), Ptx("x"));
  CHECK(store.obstacle().empty());
  CHECK_FALSE(store.Find(Cubin("a")));
}

}  // namespace ops_debug::interposer
