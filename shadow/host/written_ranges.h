// Which memory the host knows to be written: by its own copies and memsets, never by kernels, of
// which it does not know how far they came. A launch whose reads go to such memory alone has
// nothing to look up (InitPlan::slots). It may know less than the device's bits, never more.
#pragma once

#include <cstdint>
#include <map>

namespace ops_debug::shadow {

class WrittenRanges {
 public:
  // Fresh memory, of which nothing is written. What was there is forgotten.
  void Allocated(uint64_t base, uint64_t size_bytes);
  void Written(uint64_t address, uint64_t size_bytes);
  // Part of it may count as unwritten from now on; with `forever`, again and again (a graph's
  // copy).
  void Unknown(uint64_t address, uint64_t size_bytes, bool forever);
  // Everything that is allocated now.
  void AllWritten();

  // True if all of the range is, memory that nobody allocated included.
  bool AreWritten(uint64_t address, uint64_t size_bytes) const;
  enum class Answer : uint8_t { kNotAllocated, kWritten, kUnknown };
  // Of the allocation that holds `address`.
  Answer WhollyWritten(uint64_t address) const;

 private:
  struct Extent {
    uint64_t end = 0;
    bool lost = false;                     // never known again
    std::map<uint64_t, uint64_t> written;  // first -> end; no two touch
  };
  using Extents = std::map<uint64_t, Extent>;

  Extents::const_iterator FirstBehind(uint64_t address) const;  // the first that ends behind it

  Extents extents_;  // by base
};

}  // namespace ops_debug::shadow
