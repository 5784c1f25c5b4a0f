// The event ring: one block of shared memory, many producers, one consumer.
//
// Messages are opaque bytes here (a serialized proto::Event each). Producers reserve space by
// compare-and-swap on the head, copy, then commit by storing the record's header with release
// order; the consumer reads records in order and frees them by moving the tail. A producer that
// dies between reserve and commit leaves a hole: its process id stands in the reservation, and the
// consumer skips the hole once that process is gone and counts it. So for whatever producers did
// while the ring was open: messages written = messages read + lost_messages() + corrupt_records(),
// exactly, unless somebody damaged the ring. Nothing a peer writes is trusted: lengths are checked
// against the ring before use. How it works: ring_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ops_debug::proto {

enum class WhenFull : uint8_t {
  kDrop,  // bulk data: count the loss and go on
  kWait,  // what must not be lost (faults, coverage): wait up to 2 s for the consumer, then count
          // the loss. All waits of a process together: 2 s and a twentieth of its time
};

class RingProducer {
 public:
  // Maps the segment `name` (as in kEnvRing): a name in /dev/shm, or the path of an open file below
  // /proc. Null and `*error` set if it does not exist or is not a ring of this version; if memory
  // does not suffice to map it, the consumer is told. Never throws. Safe to call in any process
  // that inherits the environment.
  static std::unique_ptr<RingProducer> Open(const char* name, std::string* error);
  ~RingProducer();
  // False: dropped and counted. Thread-safe, lock-free, async-signal-unsafe. Messages larger than a
  // quarter of the ring are dropped.
  bool Write(std::span<const std::byte> message, WhenFull when_full);

 private:
  struct Impl;
  explicit RingProducer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class RingConsumer {
 public:
  // Creates the segment with room for `capacity_bytes` of records (rounded up to a power of two).
  static std::unique_ptr<RingConsumer> Create(const char* name, size_t capacity_bytes,
                                              std::string* error);
  // The same without a name, in memory that no mount limits and that nobody can shorten
  // (memfd_create(2), sealed). Producers need access to /proc/PID/fd of this process.
  static std::unique_ptr<RingConsumer> CreateNameless(size_t capacity_bytes, std::string* error);
  ~RingConsumer();  // closes it and removes the segment's name
  // What producers open.
  const std::string& name() const;
  // Next message into `*message`; false if none is ready. Corrupt records are skipped and counted.
  bool Read(std::vector<std::byte>* message);
  // Whether a record is claimed that Read has not delivered or skipped yet.
  bool HasUnread() const;
  // Gives up on the next record if its producer, though alive, has claimed it and does not commit;
  // counts it as lost. False: there is no such record.
  bool SkipClaimed();
  // From now on producers drop at once, and what they drop is nobody's loss any more. What they
  // wrote before can still be read.
  void Close();
  uint64_t lost_messages() const;  // dropped by producers, or left unfinished by dead ones
  uint64_t corrupt_records() const;
  // Producers that found no memory to map the ring, so that nothing is known about them.
  uint32_t unmapped_producers() const;

 private:
  struct Impl;
  explicit RingConsumer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ops_debug::proto
