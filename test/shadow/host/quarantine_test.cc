#include "shadow/host/quarantine.h"

#include <catch2/catch.hpp>

namespace ops_debug::shadow {
namespace {

TEST_CASE("the oldest blocks leave first, and only as many as the budget asks for") {
  Quarantine quarantine(1000);
  CHECK(quarantine.Push({.base = 1, .reserved_bytes = 400}).empty());
  CHECK(quarantine.Push({.base = 2, .reserved_bytes = 400}).empty());
  const auto evicted = quarantine.Push({.base = 3, .reserved_bytes = 500});
  REQUIRE(evicted.size() == 1);
  CHECK(evicted[0].base == 1);
  CHECK(quarantine.bytes() == 900);
}

TEST_CASE("a block larger than the budget comes straight back, after everything older") {
  Quarantine quarantine(1000);
  quarantine.Push({.base = 1, .reserved_bytes = 10});
  const auto evicted = quarantine.Push({.base = 2, .reserved_bytes = 1001});
  REQUIRE(evicted.size() == 2);
  CHECK(evicted[0].base == 1);
  CHECK(evicted[1].base == 2);
  CHECK(quarantine.bytes() == 0);
}

TEST_CASE("flushing returns all blocks in order") {
  Quarantine quarantine(1000);
  quarantine.Push({.base = 1, .reserved_bytes = 10});
  quarantine.Push({.base = 2, .reserved_bytes = 20});
  const auto all = quarantine.Flush();
  REQUIRE(all.size() == 2);
  CHECK(all[0].base == 1);
  CHECK(quarantine.size() == 0);
  CHECK(quarantine.bytes() == 0);
}

}  // namespace
}  // namespace ops_debug::shadow
