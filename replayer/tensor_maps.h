// Tensor maps: opaque, and of another form on each device. Where the captured memory holds one in
// the original device's form, the CPU device's form of the same tensor takes its place.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/capture.pb.h"
#include "replayer/driver.h"

namespace ops_debug::replayer {

class TensorMaps {
 public:
  // `capture` must outlive this.
  TensorMaps(const Driver& driver, const proto::Capture& capture);

  // Replaces every tensor map in `bytes`, of which the first lies at `address`, that begins at a
  // multiple of `alignment`. An error if the CPU device cannot describe such a tensor.
  Outcome Replace(uint64_t address, uint64_t alignment, std::string* bytes);

 private:
  Outcome Encode(size_t index);

  const Driver& driver_;
  const proto::Capture& capture_;
  std::unordered_multimap<uint64_t, size_t> index_;  // by the key of the opaque form
  std::vector<std::string> encoded_;                 // empty: not needed so far
};

}  // namespace ops_debug::replayer
