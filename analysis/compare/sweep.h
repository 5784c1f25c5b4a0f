// One lane of Compare: a fixed share of the elements and all sums over it. Lanes are merged in
// order, so the result does not depend on who worked on them.
#pragma once

#include <memory>
#include <vector>

#include "analysis/compare/chunk_reader.h"
#include "analysis/compare/compare_chunk.h"
#include "analysis/compare/comparison.h"
#include "analysis/compare/sweep_plan.h"
#include "analysis/compare/worst_elements.h"

namespace ops_debug::analysis {

// What all lanes share, read only.
struct SweepInputs {
  const SweepPlan& plan;
  const ChunkReader& reader;
  ChunkLimits limits;
  proto::DType ulp_type;
  ChunkKernel fast = nullptr;  // null: the exact kernel takes everything
  size_t worst_count = 10;
};

struct SweepSums {
  explicit SweepSums(const SweepInputs& inputs);
  void Merge(const SweepSums& later);

  ChunkSums whole;
  std::vector<uint64_t> keys;  // kKeys
  WorstElements worst, worst_relative;
  double passing_rtol = 0;
  std::vector<std::vector<Channel>> channels;  // by axis
  std::vector<double> grid_squared_error;
  std::vector<int64_t> grid_failed;
  std::vector<double> heat;
};

// Of all rows of the first block, then all rows of the second, and so on: [begin, end).
void Sweep(const SweepInputs& inputs, int64_t begin, int64_t end, SweepSums* sums);

// The kernel for these two tensors on this machine; null: none.
ChunkKernel FastKernelFor(const proto::Tensor& candidate, const proto::Tensor& reference);

}  // namespace ops_debug::analysis
