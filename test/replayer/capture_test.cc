// What a capture file may hold: it was written by another process, perhaps not to its end.
#include "replayer/capture.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <functional>

#include "replayer/address_space.h"

namespace ops_debug::replayer {
namespace {

constexpr uint64_t kBase = 0x2000'0000'0000;  // free, in AddressSanitizer's layout, too

proto::Capture Small() {
  proto::Capture capture;
  auto* const module = capture.add_modules();
  module->set_module_id(7);
  auto* const variable = module->add_variables();
  variable->set_address(kBase + 512);
  variable->set_content(std::string(8, 'v'));
  auto* const memory = capture.add_memory();
  memory->set_address(kBase);
  memory->set_content(std::string(512, 'm'));
  auto* const launch = capture.add_launches();
  launch->set_module_id(7);
  launch->set_kernel("kernel");
  for (auto* dim : {launch->mutable_grid(), launch->mutable_block()}) {
    dim->set_x(1);
    dim->set_y(1);
    dim->set_z(1);
  }
  return capture;
}

// The reason that a changed capture is refused for; empty if it is not.
std::string Refusal(const std::function<void(proto::Capture&)>& change) {
  proto::Capture capture = Small();
  change(capture);
  const Outcome outcome = CheckCapture(capture);
  CHECK((outcome.ok() || outcome.kind == OutcomeKind::kDamaged));
  return outcome.reason;
}

TEST_CASE("a capture whose references all lead somewhere is taken") {
  CHECK(Refusal([](proto::Capture&) {}).empty());
}

TEST_CASE("a capture that cannot be replayed is refused with what is wrong") {
  CHECK_THAT(Refusal([](proto::Capture& c) { c.clear_launches(); }), Catch::Contains("no launch"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_launches(0)->set_module_id(8); }),
             Catch::Contains("the module of kernel kernel is missing"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_launches(0)->mutable_block()->set_y(0); }),
             Catch::Contains("has no shape"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_launches(0)->add_after(0); }),
             Catch::Contains("comes after a later one"));
}

TEST_CASE("blocks and variables must not overlap, nor lie where no memory can") {
  CHECK_THAT(
      Refusal([](proto::Capture& c) { c.mutable_memory(0)->mutable_content()->push_back(0); }),
      Catch::Contains("two blocks of memory hold 0x200000000200"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_memory(0)->set_address(0); }),
             Catch::Contains("no memory of a process"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_memory(0)->set_address(~0ull - 100); }),
             Catch::Contains("no memory of a process"));
  CHECK_THAT(Refusal([](proto::Capture& c) { c.mutable_memory(0)->set_address(1ull << 47); }),
             Catch::Contains("no memory of a process"));
}

TEST_CASE("unwritten bytes lie inside of their block, in order") {
  const auto add = [](proto::Capture& c, uint64_t offset, uint64_t size) {
    auto* const range = c.mutable_memory(0)->add_unwritten();
    range->set_offset(offset);
    range->set_size(size);
  };
  CHECK(Refusal([&](proto::Capture& c) { add(c, 0, 100), add(c, 100, 412); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c, 500, 13); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c, 1, ~0ull); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c, 50, 10), add(c, 40, 5); }).empty());
}

TEST_CASE("a tensor map needs all of its description") {
  const auto add = [](proto::Capture& c) -> proto::CaptureTensorMap& {
    proto::CaptureTensorMap& map = *c.add_tensor_maps();
    map.set_opaque(std::string(128, 't'));
    map.set_rank(2);
    for (int i = 0; i < 2; ++i)
      map.add_global_dim(4), map.add_box_dim(4), map.add_element_strides(1);
    map.add_global_strides(16);
    return map;
  };
  CHECK(Refusal([&](proto::Capture& c) { add(c); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c).set_rank(3); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c).set_opaque("short"); }).empty());
  CHECK_FALSE(Refusal([&](proto::Capture& c) { add(c).clear_global_strides(); }).empty());
}

TEST_CASE("the pages of neighbours are mapped once") {
  proto::Capture capture = Small();
  auto* const far = capture.add_memory();
  far->set_address(kBase + 3 * 4096 + 4000);
  far->set_content(std::string(200, 'f'));
  const std::vector<AddressRange> pages = PagesOf(capture);
  REQUIRE(pages.size() == 2);
  CHECK((pages[0].begin == kBase && pages[0].end == kBase + 4096));
  CHECK((pages[1].begin == kBase + 3 * 4096 && pages[1].end == kBase + 5 * 4096));
}

TEST_CASE("pages that are taken are left alone, and so are those before them") {
  const AddressRange free_one{kBase, kBase + 4096}, taken{kBase + 8192, kBase + 16384};
  std::string reason;
  REQUIRE(MapPages({taken}, &reason));
  *reinterpret_cast<char*>(taken.begin) = 'x';
  CHECK_FALSE(MapPages({free_one, taken}, &reason));
  CHECK_THAT(reason, Catch::Contains("0x200000002000 to 0x200000004000") &&
                         Catch::Contains("other memory lies there"));
  CHECK(*reinterpret_cast<char*>(taken.begin) == 'x');
  CHECK(MapPages({free_one}, &reason));
  munmap(reinterpret_cast<void*>(taken.begin), 8192);
  munmap(reinterpret_cast<void*>(free_one.begin), 4096);
}

}  // namespace
}  // namespace ops_debug::replayer
