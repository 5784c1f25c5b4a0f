// Chunks of one column follow each other; what their elements have in common is spread over the
// bins of grid and heat map when those change, over channels at the end of the column.
#include "analysis/compare/sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/compare/exact_chunk.h"

namespace ops_debug::analysis {
namespace {

using proto::DType;

void MergeSums(const ChunkSums& from, ChunkSums* to) {
  if (from.finite > 0) {
    const bool first = to->finite == 0;
    const auto least = [&](double a, double b) { return first ? b : std::min(a, b); };
    const auto most = [&](double a, double b) { return first ? b : std::max(a, b); };
    to->min_candidate = least(to->min_candidate, from.min_candidate);
    to->max_candidate = most(to->max_candidate, from.max_candidate);
    to->min_reference = least(to->min_reference, from.min_reference);
    to->max_reference = most(to->max_reference, from.max_reference);
  }
  to->d += from.d;
  to->abs_d += from.abs_d;
  to->dd += from.dd;
  to->r += from.r;
  to->rr += from.rr;
  to->dr += from.dr;
  to->c += from.c;
  to->cc += from.cc;
  to->max_abs = std::max(to->max_abs, from.max_abs);
  to->over = std::max(to->over, from.over);
  to->zero_reference = std::max(to->zero_reference, from.zero_reference);
  to->finite += from.finite;
  to->failed += from.failed;
  to->excused += from.excused;
  to->mismatch += from.mismatch;
  to->nan_candidate += from.nan_candidate;
  to->nan_reference += from.nan_reference;
  to->nan_both += from.nan_both;
  to->inf_candidate += from.inf_candidate;
  to->inf_reference += from.inf_reference;
  to->inf_both += from.inf_both;
}

// All rows of one block, one after the other.
class Column {
 public:
  Column(const SweepInputs& inputs, SweepSums* sums)
      : inputs_(inputs), plan_(inputs.plan), sums_(*sums), tables_(kKeyTables * kKeys) {
    for (std::vector<float>& wide : wide_) wide.resize(kChunk);
    outer_.resize(plan_.inner);
    for (ElementSums* elements : {&recent_, &all_}) elements->Resize(plan_.block_width);
  }
  ~Column() {
    for (size_t i = 0; i < tables_.size(); ++i) sums_.keys[i % kKeys] += tables_[i];
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  void Begin(int64_t block) {
    block_begin_ = block * plan_.block_width;
    length_ = plan_.group > 1 ? plan_.block_width
                              : std::min(plan_.block_width, plan_.inner_count - block_begin_);
    cells_.clear();
    int64_t last_cell = -1;
    for (int64_t i = 0; i < length_; ++i) {
      int64_t cell = 0, stride = plan_.inner_count;
      for (size_t axis = plan_.inner; axis < plan_.shape.size(); ++axis) {
        cell = cell * plan_.grid_sizes[axis] + IndexOf(i, axis, &stride) / plan_.grid_bins[axis];
      }
      if (cell != last_cell) cells_.push_back({static_cast<size_t>(cell), i, i});
      cells_.back().end = i + 1;
      last_cell = cell;
    }
  }

  // Rows of one segment (SweepPlan::SegmentEnd).
  void AddSegment(int64_t row, int64_t end) {
    Place(row);
    ChunkSums segment;
    for (int64_t at = row; at < end; at += plan_.group) {
      const int64_t rows = std::min(plan_.group, end - at);
      const int64_t count = plan_.group > 1 ? rows * plan_.inner_count : length_;
      ChunkSums chunk;
      AddChunk(at * plan_.inner_count + block_begin_, count, &chunk);
      if (plan_.inner > 0) {
        const size_t axis = plan_.inner - 1;
        const int64_t index = outer_[axis] + at - row;
        AddTo(chunk, &sums_.channels[axis][static_cast<size_t>(index / plan_.channel_bins[axis])]);
      }
      MergeSums(chunk, &segment);
      used_ = std::max(used_, count);
    }
    MergeSums(segment, &sums_.whole);
    for (size_t axis = 0; axis + 1 < plan_.inner; ++axis) {
      AddTo(segment,
            &sums_.channels[axis][static_cast<size_t>(outer_[axis] / plan_.channel_bins[axis])]);
    }
    if (!HasElements()) AddToGrid(0, segment.dd, segment.failed);
    if (plan_.heat_rows_per_row() == 0) {
      const double worst = WorstOf(segment);
      AddHeat(TileRow(row / plan_.heat_width), row % plan_.heat_width, &worst, 1);
    }
  }

  void End() {
    Flush();
    for (size_t axis = plan_.inner; axis < plan_.shape.size(); ++axis) {
      for (int64_t i = 0; i < length_; ++i) {
        int64_t stride = plan_.inner_count;
        for (size_t k = plan_.inner; k < axis; ++k) stride /= plan_.shape[k];
        const int64_t index = IndexOf(i, axis, &stride);
        Channel& channel =
            sums_.channels[axis][static_cast<size_t>(index / plan_.channel_bins[axis])];
        channel.squared_error += all_.squared_error[i];
        channel.squared_reference += all_.squared_reference[i];
        channel.max_abs = std::max(channel.max_abs, all_.max_abs[i]);
        channel.failed += all_.failed[i];
      }
    }
    all_.Clear();
  }

 private:
  // Of each element of a chunk, over several chunks.
  struct ElementSums {
    std::vector<double> squared_error, squared_reference, max_abs;
    std::vector<uint32_t> failed;

    void Resize(int64_t length) {
      const auto size = static_cast<size_t>(length);
      squared_error.resize(size);
      squared_reference.resize(size);
      max_abs.resize(size);
      failed.resize(size);
    }
    void Clear() {
      std::fill(squared_error.begin(), squared_error.end(), 0);
      std::fill(squared_reference.begin(), squared_reference.end(), 0);
      std::fill(max_abs.begin(), max_abs.end(), 0);
      std::fill(failed.begin(), failed.end(), 0);
    }
  };
  struct CellRun {
    size_t cell = 0;  // from outer_cell_
    int64_t begin = 0, end = 0;
  };

  // Of element i of the block; *stride: elements from the axis on, becomes those behind it.
  int64_t IndexOf(int64_t i, size_t axis, int64_t* stride) const {
    *stride /= plan_.shape[axis];
    return (block_begin_ + i) / *stride % plan_.shape[axis];
  }

  bool HasElements() const { return plan_.inner < plan_.shape.size(); }

  void Flush() {
    if (used_ == 0 || !HasElements()) return;
    const auto used = static_cast<size_t>(used_);
    for (const CellRun& run : cells_) {
      double squared_error = 0;
      int64_t failed = 0;
      for (int64_t i = run.begin; i < std::min(run.end, used_); ++i) {
        squared_error += recent_.squared_error[i];
        failed += recent_.failed[i];
      }
      AddToGrid(run.cell, squared_error, failed);
    }
    for (int64_t i = 0;
         i < used_ && plan_.heat_rows_per_row() > 0;) {  // by rows of the folded matrix
      const int64_t at = block_begin_ + i;
      const int64_t column = at % plan_.heat_width;
      const int64_t run = std::min(used_ - i, plan_.heat_width - column);
      const int64_t tile_row =
          split_by_heat_ ? TileRow(first_row_ * plan_.heat_rows_per_row() + at / plan_.heat_width)
                         : tile_row_;
      AddHeat(tile_row, column, recent_.max_abs.data() + i, run);
      i += run;
    }
    for (size_t i = 0; i < used; ++i) all_.squared_error[i] += recent_.squared_error[i];
    for (size_t i = 0; i < used; ++i) all_.squared_reference[i] += recent_.squared_reference[i];
    for (size_t i = 0; i < used; ++i)
      all_.max_abs[i] = std::max(all_.max_abs[i], recent_.max_abs[i]);
    for (size_t i = 0; i < used; ++i) all_.failed[i] += recent_.failed[i];
    recent_.Clear();
    used_ = 0;
  }

  void AddChunk(int64_t position, int64_t count, ChunkSums* chunk) {
    ColumnSums columns;
    if (HasElements()) {
      columns = {recent_.squared_error.data(), recent_.squared_reference.data(),
                 recent_.max_abs.data(), recent_.failed.data()};
    }
    if (inputs_.fast != nullptr) {
      ChunkTask task;
      task.candidate = inputs_.reader.Dense(0, position);
      task.reference = inputs_.reader.Dense(1, position);
      task.count = count;
      task.prefetch_bytes =
          inputs_.reader.Bytes(plan_.group > 1 || plan_.inner == 0 ? count : plan_.inner_count);
      task.wide[0] = wide_[0].data();
      task.wide[1] = wide_[1].data();
      task.keys = tables_.data();
      const ChunkFilters filters = {sums_.worst.threshold(),
                                    static_cast<float>(sums_.worst_relative.threshold()),
                                    sums_.passing_rtol};
      if (inputs_.fast(inputs_.limits, filters, &task, columns, chunk)) {
        if (!task.look) return;
        inputs_.reader.Read(position, count, &values_);
        Look<float>(position, count);
        return;
      }
    }
    inputs_.reader.Read(position, count, &values_);
    AddExactChunk(values_, count, inputs_.ulp_type, inputs_.limits, columns, tables_.data(), chunk);
    if (inputs_.fast != nullptr) {
      Look<float>(position, count);
    } else {
      Look<double>(position, count);
    }
  }

  // Puts elements into the lists of the worst. Ratio: in which relative errors are put in order, as
  // the kernel does when it asks whether one exceeds the last of the list.
  template <class Ratio>
  void Look(int64_t position, int64_t count) {
    const double least_abs = sums_.worst.threshold();
    const auto least_rel = static_cast<Ratio>(sums_.worst_relative.threshold());
    candidates_[0].clear();
    candidates_[1].clear();
    for (int64_t i = 0; i < count; ++i) {
      double error = 0, magnitude = 0;
      if (!values_.complex) {
        error = std::abs(values_.difference[i]);
        magnitude = std::abs(values_.real[1][i]);
      }
      // Complex; NaN or an infinity on some side.
      if (values_.complex || !(error <= std::numeric_limits<double>::max())) {
        const ElementErrors errors = ErrorsOf(values_, i, DType::kInt8);
        error = errors.abs_error;
        magnitude = errors.finite ? errors.magnitude : 0;
      }
      if (error > least_abs) candidates_[0].push_back({error, position + i});
      if (magnitude == 0 || error == 0) continue;
      const Ratio ratio = RatioOf<Ratio>(i, error, magnitude);
      if (ratio > least_rel) candidates_[1].push_back({ratio, position + i});
      if (error - inputs_.limits.atol > sums_.passing_rtol * magnitude) {
        sums_.passing_rtol =
            std::max(sums_.passing_rtol, (error - inputs_.limits.atol) / magnitude);
      }
    }
    sums_.worst.AddAll(&candidates_[0]);
    sums_.worst_relative.AddAll(&candidates_[1]);
  }
  template <class Ratio>
  Ratio RatioOf(int64_t i, double error, double magnitude) const {
    if constexpr (sizeof(Ratio) == sizeof(double)) return error / magnitude;
    const auto reference = static_cast<float>(values_.real[1][i]);
    return std::abs(static_cast<float>(values_.real[0][i]) - reference) / std::abs(reference);
  }

  static double WorstOf(const ChunkSums& sums) {
    return sums.mismatch > 0 ? std::numeric_limits<double>::infinity() : sums.max_abs;
  }
  static void AddTo(const ChunkSums& sums, Channel* channel) {
    channel->squared_error += sums.dd;
    channel->squared_reference += sums.rr;
    channel->max_abs = std::max(channel->max_abs, WorstOf(sums));
    channel->failed += sums.failed;
  }

  void AddToGrid(size_t cell, double squared_error, int64_t failed) {
    sums_.grid_squared_error[outer_cell_ + cell] += squared_error;
    sums_.grid_failed[outer_cell_ + cell] += failed;
  }

  int64_t TileRow(int64_t folded_row) const {
    return folded_row / static_cast<int64_t>(plan_.heat.tile_rows);
  }

  void AddHeat(int64_t tile_row, int64_t column, const double* errors, int64_t count) {
    const HeatMap& heat = plan_.heat;
    double* const cells = sums_.heat.data() + tile_row * heat.columns;
    const auto width = static_cast<int64_t>(heat.tile_columns);
    for (int64_t i = 0; i < count;) {
      const int64_t tile = (column + i) / width;
      const int64_t end = std::min(count, (tile + 1) * width - column);
      double worst = cells[tile];
      for (; i < end; ++i) worst = std::max(worst, errors[i]);
      cells[tile] = worst;
    }
  }

  // Flushes if this row belongs to other bins than those before.
  void Place(int64_t row) {
    int64_t rest = row;
    for (size_t axis = plan_.inner; axis-- > 0;) {
      outer_[axis] = rest % plan_.shape[axis];
      rest /= plan_.shape[axis];
    }
    size_t cell = 0;
    for (size_t axis = 0; axis < plan_.shape.size(); ++axis) {
      cell *= static_cast<size_t>(plan_.grid_sizes[axis]);
      if (axis < plan_.inner) cell += static_cast<size_t>(outer_[axis] / plan_.grid_bins[axis]);
    }
    const int64_t tile_row = TileRow(row * plan_.heat_rows_per_row());
    const bool split = plan_.IsSplitByHeat(row);
    if (cell == outer_cell_ && tile_row == tile_row_ && !split && !split_by_heat_) return;
    Flush();
    outer_cell_ = cell;
    tile_row_ = tile_row;
    split_by_heat_ = split;
    first_row_ = row;
  }

  const SweepInputs& inputs_;
  const SweepPlan& plan_;
  SweepSums& sums_;
  std::vector<uint32_t> tables_;
  std::vector<float> wide_[2];
  ChunkValues values_;
  std::vector<WorstElement> candidates_[2];
  ElementSums recent_, all_;    // since the last flush; of the whole block
  std::vector<CellRun> cells_;  // of the grid, in the block
  int64_t block_begin_ = 0, length_ = 0, used_ = 0;
  std::vector<int64_t> outer_;  // indices of the outer axes
  size_t outer_cell_ = 0;
  int64_t tile_row_ = -1, first_row_ = 0;
  bool split_by_heat_ = false;
};

}  // namespace

SweepSums::SweepSums(const SweepInputs& inputs)
    : keys(kKeys),
      worst(inputs.worst_count),
      worst_relative(inputs.worst_count),
      heat(size_t{inputs.plan.heat.rows} * inputs.plan.heat.columns) {
  const SweepPlan& plan = inputs.plan;
  size_t cells = 1;
  for (size_t axis = 0; axis < plan.shape.size(); ++axis) {
    cells *= static_cast<size_t>(plan.grid_sizes[axis]);
    const int64_t bin = plan.channel_bins[axis];
    std::vector<Channel>& slices = channels.emplace_back();
    for (int64_t i = 0; i < plan.shape[axis]; i += bin) {
      slices.push_back(
          {.index = i,
           .count = std::min(bin, plan.shape[axis] - i) * (plan.count / plan.shape[axis])});
    }
  }
  grid_squared_error.resize(cells);
  grid_failed.resize(cells);
}

void SweepSums::Merge(const SweepSums& later) {
  MergeSums(later.whole, &whole);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] += later.keys[i];
  worst.Merge(later.worst);
  worst_relative.Merge(later.worst_relative);
  passing_rtol = std::max(passing_rtol, later.passing_rtol);
  for (size_t axis = 0; axis < channels.size(); ++axis) {
    for (size_t i = 0; i < channels[axis].size(); ++i) {
      Channel& to = channels[axis][i];
      const Channel& from = later.channels[axis][i];
      to.squared_error += from.squared_error;
      to.squared_reference += from.squared_reference;
      to.max_abs = std::max(to.max_abs, from.max_abs);
      to.failed += from.failed;
    }
  }
  for (size_t i = 0; i < grid_failed.size(); ++i) {
    grid_squared_error[i] += later.grid_squared_error[i];
    grid_failed[i] += later.grid_failed[i];
  }
  for (size_t i = 0; i < heat.size(); ++i) heat[i] = std::max(heat[i], later.heat[i]);
}

void Sweep(const SweepInputs& inputs, int64_t begin, int64_t end, SweepSums* sums) {
  const SweepPlan& plan = inputs.plan;
  Column column(inputs, sums);
  int64_t block = -1;
  for (int64_t at = begin; at < end;) {
    if (at / plan.rows != block) {
      if (block >= 0) column.End();
      block = at / plan.rows;
      column.Begin(block);
    }
    const int64_t row = at % plan.rows;
    const int64_t segment = std::min(plan.SegmentEnd(row) - row, end - at);
    column.AddSegment(row, row + segment);
    at += segment;
  }
  if (block >= 0) column.End();
}

ChunkKernel FastKernelFor(const proto::Tensor& candidate, const proto::Tensor& reference) {
  if (candidate.dtype != reference.dtype || !candidate.IsDense() || !reference.IsDense())
    return nullptr;
  const ChunkKernels* kernels = &kChunkKernelsPortable;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (kChunkKernelsAvx512.float32 != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    kernels = &kChunkKernelsAvx512;
  } else if (kChunkKernelsAvx2.float32 != nullptr && __builtin_cpu_supports("avx2") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    kernels = &kChunkKernelsAvx2;
  }
#endif
  switch (candidate.dtype) {
    case DType::kFloat32:
      return kernels->float32;
    case DType::kTf32:
      return kernels->tf32;
    case DType::kFloat16:
      return kernels->float16;
    case DType::kBfloat16:
      return kernels->bfloat16;
    default:
      return nullptr;
  }
}

}  // namespace ops_debug::analysis
