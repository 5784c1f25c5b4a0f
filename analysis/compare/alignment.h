// Which tensor of the candidate is which of the reference, in the order of execution.
//
// Partners, in this order: the name that --map gives; the same name; the same name but for the call
// index
// ("conv" and "conv#0", "conv/out" and "conv#0/out", or counted from 0 and from 1), call by call;
// and if each side has one tensor only, these two. The order is that of the candidate's file; where
// that is merely the alphabet, as safetensors.torch.save_file leaves it, "layer2" comes before
// "layer10".
#pragma once

#include <string>
#include <vector>

#include "analysis/compare/name_map.h"
#include "proto/tensor_file.h"

namespace ops_debug::analysis {

// One of both may be null: missing on that side. Points into the sets.
struct Partners {
  std::string tag;
  const proto::Tensor* candidate = nullptr;
  const proto::Tensor* reference = nullptr;
};

struct Alignment {
  std::vector<Partners> pairs;  // what the reference alone has stands behind what it has before
  std::vector<std::string> remarks;  // rules that did not fit, and a rule that would
};

// `map` may be null.
Alignment Align(const proto::TensorSet& candidate, const proto::TensorSet& reference,
                const NameMap* map);

}  // namespace ops_debug::analysis
