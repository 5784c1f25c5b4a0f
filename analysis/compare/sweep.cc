// Units of one column follow each other; what their elements have in common is spread over the bins
// when the outer bins change.
#include "analysis/compare/sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/compare/exact_chunk.h"

namespace ops_debug::analysis {
namespace {

using proto::DType;

// A filter in float32 must not be above what it stands for.
float Below(double value) { return std::nextafterf(static_cast<float>(value * (1 - 1e-6)), 0.0f); }

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

// A column of units: the same indices of the split axis and behind.
class Column {
 public:
  Column(const SweepInputs& inputs, SweepSums* sums)
      : inputs_(inputs), plan_(inputs.plan), sums_(*sums), tables_(kKeyTables * kKeys) {
    for (std::vector<float>& wide : wide_) wide.resize(kChunk);
    if (!plan_.per_element) return;
    squared_error_.resize(kUnit);
    squared_reference_.resize(kUnit);
    max_abs_.resize(kUnit);
    failed_.resize(kUnit);
  }
  ~Column() {
    for (size_t i = 0; i < tables_.size(); ++i) sums_.keys[i % kKeys] += tables_[i];
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  void Begin(int64_t block) {
    block_ = block;
    length_ = plan_.UnitLength(block);
    const size_t rank = plan_.shape.size();
    channel_of_.assign(rank, {});
    cell_of_.assign(static_cast<size_t>(length_), 0);
    int64_t stride = plan_.behind, cells = 1;
    for (size_t axis = plan_.split + 1; axis < rank; ++axis) cells *= plan_.grid_sizes[axis];
    for (size_t axis = plan_.split; axis < rank && plan_.per_element; ++axis) {
      if (axis > plan_.split) {
        stride /= plan_.shape[axis];
        cells /= plan_.grid_sizes[axis];
      }
      const int64_t first = axis == plan_.split ? block * plan_.unit_steps : 0;
      std::vector<int32_t>& channel = channel_of_[axis];
      channel.resize(static_cast<size_t>(length_));
      for (int64_t i = 0; i < length_; ++i) {
        const int64_t index = first + i / stride % plan_.shape[axis];
        channel[static_cast<size_t>(i)] = static_cast<int32_t>(index / plan_.channel_bins[axis]);
        cell_of_[static_cast<size_t>(i)] +=
            static_cast<int32_t>(index / plan_.grid_bins[axis] * cells);
      }
    }
    units_ = 0;
  }

  void Add(int64_t outer_index) {
    PlaceOuter(outer_index);
    const int64_t begin = plan_.UnitBegin(outer_index, block_);
    ChunkSums unit;
    for (int64_t at = 0; at < length_; at += kChunk) {
      const int64_t count = std::min<int64_t>(kChunk, length_ - at);
      ChunkSums chunk;
      AddChunk(begin + at, at, count, &chunk);
      if (!plan_.per_element) SpreadChunk(begin + at, at, count, chunk);
      MergeSums(chunk, &unit);
    }
    MergeSums(unit, &sums_.whole);
    for (size_t axis = 0; axis < plan_.split; ++axis) {
      AddTo(unit, length_,
            &sums_.channels[axis][static_cast<size_t>(outer_[axis] / plan_.channel_bins[axis])]);
    }
    ++units_;
  }

  // Spreads what the elements of the column sum up to.
  void Flush() {
    if (!plan_.per_element || units_ == 0) return;
    for (size_t axis = plan_.split; axis < plan_.shape.size(); ++axis) {
      std::vector<Channel>& channels = sums_.channels[axis];
      const int32_t* const channel_of = channel_of_[axis].data();
      for (int64_t i = 0; i < length_; ++i) {
        Channel& channel = channels[static_cast<size_t>(channel_of[i])];
        channel.squared_error += squared_error_[i];
        channel.squared_reference += squared_reference_[i];
        channel.max_abs = std::max(channel.max_abs, max_abs_[i]);
        channel.failed += failed_[i];
        channel.count += units_;
      }
    }
    for (int64_t i = 0; i < length_; ++i) {
      const auto cell = static_cast<size_t>(outer_cell_ + cell_of_[i]);
      sums_.grid_squared_error[cell] += squared_error_[i];
      sums_.grid_failed[cell] += failed_[i];
    }
    for (int64_t i = 0; i < length_;) {  // by rows of the folded matrix
      const int64_t position = first_position_ + i;
      const int64_t row = position / plan_.heat_width, column = position % plan_.heat_width;
      const int64_t run = std::min(length_ - i, plan_.heat_width - column);
      AddHeatRow(row, column, max_abs_.data() + i, run);
      i += run;
    }
    const auto length = static_cast<size_t>(length_);
    std::fill_n(squared_error_.begin(), length, 0);
    std::fill_n(squared_reference_.begin(), length, 0);
    std::fill_n(max_abs_.begin(), length, 0);
    std::fill_n(failed_.begin(), length, 0);
    units_ = 0;
  }

 private:
  void AddChunk(int64_t position, int64_t at, int64_t count, ChunkSums* chunk) {
    ColumnSums columns;
    if (plan_.per_element) {
      columns = {squared_error_.data() + at, squared_reference_.data() + at, max_abs_.data() + at,
                 failed_.data() + at};
    }
    if (inputs_.fast != nullptr) {
      ChunkTask task;
      task.candidate = inputs_.reader.Dense(0, position);
      task.reference = inputs_.reader.Dense(1, position);
      task.count = count;
      task.wide[0] = wide_[0].data();
      task.wide[1] = wide_[1].data();
      task.keys = tables_.data();
      const ChunkFilters filters = {sums_.worst.threshold(),
                                    Below(sums_.worst_relative.threshold()), sums_.passing_rtol};
      if (inputs_.fast(inputs_.limits, filters, &task, columns, chunk)) {
        if (task.look) LookAtAll(position, count);
        return;
      }
    }
    inputs_.reader.Read(position, count, &values_);
    AddExactChunk(values_, count, inputs_.ulp_type, inputs_.limits, columns, tables_.data(), chunk);
    Look(position, count);
  }

  void LookAtAll(int64_t position, int64_t count) {
    inputs_.reader.Read(position, count, &values_);
    Look(position, count);
  }

  void Look(int64_t position, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const ElementErrors errors = ErrorsOf(values_, i, DType::kInt8);
      if (errors.abs_error == 0) continue;
      sums_.worst.Add(errors.abs_error, position + i);
      if (!errors.finite || errors.magnitude == 0) continue;
      sums_.worst_relative.Add(errors.abs_error / errors.magnitude, position + i);
      sums_.passing_rtol =
          std::max(sums_.passing_rtol, (errors.abs_error - inputs_.limits.atol) / errors.magnitude);
    }
  }

  static void AddTo(const ChunkSums& sums, int64_t count, Channel* channel) {
    channel->squared_error += sums.dd;
    channel->squared_reference += sums.rr;
    channel->max_abs =
        std::max(channel->max_abs,
                 sums.mismatch > 0 ? std::numeric_limits<double>::infinity() : sums.max_abs);
    channel->failed += sums.failed;
    channel->count += count;
  }

  // Of the last axis, whose bins are made of whole chunks.
  void SpreadChunk(int64_t position, int64_t at, int64_t count, const ChunkSums& chunk) {
    const size_t last = plan_.shape.size() - 1;
    const int64_t index = block_ * plan_.unit_steps + at;
    AddTo(chunk, count,
          &sums_.channels[last][static_cast<size_t>(index / plan_.channel_bins[last])]);
    const auto cell = static_cast<size_t>(outer_cell_ + index / plan_.grid_bins[last]);
    sums_.grid_squared_error[cell] += chunk.dd;
    sums_.grid_failed[cell] += chunk.failed;
    double worst = chunk.mismatch > 0 ? std::numeric_limits<double>::infinity() : chunk.max_abs;
    AddHeatRow(position / plan_.heat_width, position % plan_.heat_width, &worst, 1);
  }

  void AddHeatRow(int64_t row, int64_t column, const double* errors, int64_t count) {
    const HeatMap& heat = plan_.heat;
    double* const cells =
        sums_.heat.data() + row / static_cast<int64_t>(heat.tile_rows) * heat.columns;
    const auto width = static_cast<int64_t>(heat.tile_columns);
    for (int64_t i = 0; i < count;) {
      const int64_t tile = (column + i) / width;
      const int64_t end = std::min(count, (tile + 1) * width - column);
      double worst = cells[tile];
      for (; i < end; ++i) worst = std::max(worst, errors[i]);
      cells[tile] = worst;
    }
  }

  // Flushes if this unit belongs to other bins than the one before.
  void PlaceOuter(int64_t outer_index) {
    outer_.resize(plan_.split);
    int64_t rest = outer_index;
    for (size_t axis = plan_.split; axis-- > 0;) {
      outer_[axis] = rest % plan_.shape[axis];
      rest /= plan_.shape[axis];
    }
    int64_t cell = 0;
    for (size_t axis = 0; axis < plan_.shape.size(); ++axis) {
      cell *= plan_.grid_sizes[axis];
      if (axis < plan_.split) cell += outer_[axis] / plan_.grid_bins[axis];
    }
    const int64_t begin = plan_.UnitBegin(outer_index, block_);
    const auto tile_row = [&](int64_t position) {
      return position / plan_.heat_width / static_cast<int64_t>(plan_.heat.tile_rows);
    };
    const int64_t first_tile = tile_row(begin), last_tile = tile_row(begin + length_ - 1);
    const bool together = units_ > 0 && cell == outer_cell_ && first_tile == last_tile &&
                          first_tile == first_tile_ && last_tile == last_tile_ &&
                          begin % plan_.heat_width == first_position_ % plan_.heat_width;
    if (together) return;
    Flush();
    outer_cell_ = cell;
    first_position_ = begin;
    first_tile_ = first_tile;
    last_tile_ = last_tile;
  }

  const SweepInputs& inputs_;
  const SweepPlan& plan_;
  SweepSums& sums_;
  std::vector<uint32_t> tables_;
  std::vector<float> wide_[2];
  ChunkValues values_;
  std::vector<double> squared_error_, squared_reference_, max_abs_;
  std::vector<uint32_t> failed_;
  std::vector<std::vector<int32_t>> channel_of_;  // by axis from the split on, by element
  std::vector<int32_t> cell_of_;                  // in the grid, by element
  int64_t block_ = 0, length_ = 0, units_ = 0;
  std::vector<int64_t> outer_;
  int64_t outer_cell_ = 0, first_position_ = 0, first_tile_ = 0, last_tile_ = 0;
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
    for (int64_t i = 0; i < plan.shape[axis]; i += bin) slices.emplace_back().index = i;
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
      to.count += from.count;
    }
  }
  for (size_t i = 0; i < grid_failed.size(); ++i) {
    grid_squared_error[i] += later.grid_squared_error[i];
    grid_failed[i] += later.grid_failed[i];
  }
  for (size_t i = 0; i < heat.size(); ++i) heat[i] = std::max(heat[i], later.heat[i]);
}

void Sweep(const SweepInputs& inputs, int64_t begin, int64_t end, SweepSums* sums) {
  Column column(inputs, sums);
  int64_t block = -1;
  for (int64_t unit = begin; unit < end; ++unit) {
    if (unit / inputs.plan.outer != block) {
      column.Flush();
      block = unit / inputs.plan.outer;
      column.Begin(block);
    }
    column.Add(unit % inputs.plan.outer);
  }
  column.Flush();
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
