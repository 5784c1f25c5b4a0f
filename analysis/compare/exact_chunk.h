// The slow, exact counterpart of the kernels in compare_chunk.h: any types, any values.
#pragma once

#include "analysis/compare/chunk_reader.h"
#include "analysis/compare/compare_chunk.h"
#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// What one element says; of complex numbers `difference` is a modulus.
struct ElementErrors {
  bool finite = true;     // on both sides
  bool mismatch = false;  // NaN or infinite, and not the same on both sides
  double difference = 0, abs_error = 0;
  double magnitude = 0;  // of the reference
  double ulps = 0;
};
ElementErrors ErrorsOf(const ChunkValues& values, int64_t i, proto::DType ulp_type);

// The type whose spacing counts: the less precise of the two.
proto::DType UlpType(proto::DType candidate, proto::DType reference);

// Keys of one element in the tables of ChunkTask.
uint32_t KeyOf(const ElementErrors& errors);

// Adds to `sums`, `columns` and `keys` (one table).
void AddExactChunk(const ChunkValues& values, int64_t count, proto::DType ulp_type,
                   const ChunkLimits& limits, const ColumnSums& columns, uint32_t* keys,
                   ChunkSums* sums);

}  // namespace ops_debug::analysis
