// A ring of its own for each test, a raw view of its segment, and children that end without
// unwinding.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <boost/interprocess/shared_memory_object.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "proto/ring.h"
#include "proto/ring_segment.h"

namespace ops_debug::proto {

inline std::string UniqueName() {
  static int number = 0;
  return "ops-debug-test-" + std::to_string(getpid()) + "-" + std::to_string(++number);
}

inline std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Ring {
  explicit Ring(size_t capacity_bytes) {
    std::string error;
    consumer = RingConsumer::Create(name.c_str(), capacity_bytes, &error);
    INFO(error);
    REQUIRE(consumer != nullptr);
  }

  std::unique_ptr<RingProducer> Open() const {
    std::string error;
    auto producer = RingProducer::Open(name.c_str(), &error);
    INFO(error);
    REQUIRE(producer != nullptr);
    return producer;
  }

  // The next message, or "(none)".
  std::string Next() const {
    std::vector<std::byte> message;
    if (!consumer->Read(&message)) return "(none)";
    return {reinterpret_cast<const char*>(message.data()), message.size()};
  }

  // The next message, patient with holes: up to 5 s.
  std::string NextWithin5Seconds() const {
    std::string message = Next();
    for (int i = 0; i < 5000 && message == "(none)"; ++i) {
      usleep(1000);
      message = Next();
    }
    return message;
  }

  // The segment as a peer sees it.
  RingSegment Peek() const {
    namespace bip = boost::interprocess;
    RingSegment segment;
    bip::shared_memory_object object(bip::open_only, name.c_str(), bip::read_write);
    segment.region = bip::mapped_region(object, bip::read_write);
    const auto* header = static_cast<const RingHeader*>(segment.region.get_address());
    segment.Place(header->capacity_bytes, header->slot_count);
    return segment;
  }

  std::string name = UniqueName();
  std::unique_ptr<RingConsumer> consumer;
};

// Runs `body` in a child process; returns its id.
template <class Body>
pid_t Fork(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

inline int Wait(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace ops_debug::proto
