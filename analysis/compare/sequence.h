// Two files of tensors become one sequence of pairs, and that a report: what differs first, and
// what has no partner.
#pragma once

#include "analysis/compare/name_map.h"
#include "analysis/compare/report_data.h"
#include "proto/tensor_file.h"

namespace ops_debug::analysis {

// Compares each pair of the alignment (alignment.h), with its structure; missing tensors, shapes
// and types that do not fit become verdicts. What the sets cannot tell is in the remarks. `map` may
// be null. Holds no tensor when it returns.
DiffReport CompareSets(const proto::TensorSet& candidate, const proto::TensorSet& reference,
                       const NameMap* map, const CompareOptions& options);

// Whether one side has no such tensor.
bool IsMissing(const ComparedPair& pair);
// Whether the pair was compared and does not pass; of two without values (kNothingCompared) neither
// is right or wrong.
bool Fails(const ComparedPair& pair);

// Fills first_divergence and passes and adds the remarks that follow from the verdicts of
// report->pairs.
void Conclude(DiffReport* report);

}  // namespace ops_debug::analysis
