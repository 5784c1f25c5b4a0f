// Why these rules are safe: a kernel that reads blockDim adapts to any block, so a default is
// right; one that does not has its block baked in, and only .reqntid, __launch_bounds__ or the user
// know it. The same holds for the grid: only an index that is computed from blockIdx and blockDim
// says how many elements a block covers.
#include "runner/launch_shape.h"

#include "runner/text.h"

namespace ops_debug::runner {
namespace {

constexpr uint32_t kDefaultThreads = 256;
constexpr uint64_t kMaxThreads = 1024;

uint64_t Product(const Dimensions& d) { return static_cast<uint64_t>(d[0]) * d[1] * d[2]; }

std::string ToText(const Dimensions& d) { return StrCat(d[0], "x", d[1], "x", d[2]); }

bool ReadDimensions(std::string_view option, std::string_view text, const NameLookup& lookup,
                    Dimensions* dimensions, std::vector<std::string>* problems) {
  absl::StatusOr<std::vector<int64_t>> values = EvaluateList(text, lookup);
  if (!values.ok()) {
    problems->push_back(StrCat(option, ": ", values.status().message()));
    return false;
  }
  if (values->size() > 3) {
    problems->push_back(StrCat(option, ": '", text, "' has more than three dimensions"));
    return false;
  }
  for (size_t axis = 0; axis < values->size(); ++axis) {
    const int64_t value = (*values)[axis];
    const int64_t limit = axis == 0 ? INT32_MAX : 65535;
    if (value < 1 || value > limit) {
      problems->push_back(StrCat(option, ": '", text, "' gives ", value, " in dimension ", axis,
                                 ", outside 1 to ", limit));
      return false;
    }
    (*dimensions)[axis] = static_cast<uint32_t>(value);
  }
  return true;
}

}  // namespace

void PlanBlock(const LaunchRequest& request, const NameLookup& lookup, LaunchPlan* plan,
               std::vector<std::string>* problems) {
  const Entry& entry = plan->entry;
  const IndexUse& use = entry.index_use;
  if (!request.block.empty()) {
    if (!ReadDimensions("block", request.block, lookup, &plan->block, problems)) return;
  } else if (entry.required_block.has_value()) {
    plan->block = *entry.required_block;
  } else if (use.thread[1] || use.thread[2]) {
    const std::string bound = entry.maximum_block.has_value()
                                  ? StrCat(" (at most ", Product(*entry.maximum_block), " threads)")
                                  : "";
    problems->push_back(
        StrCat("block: the kernel reads threadIdx.y, and nothing says how its block is shaped",
               bound, "\n    pass --block, for example --block 16x16 or --block 32x8"));
  } else if (entry.maximum_block.has_value()) {
    plan->block = {static_cast<uint32_t>(Product(*entry.maximum_block)), 1, 1};
  } else if (!use.thread[0]) {
    plan->block = {1, 1, 1};
  } else if (use.threads_per_block[0]) {
    plan->block = {kDefaultThreads, 1, 1};
  } else {
    problems->push_back(
        "block: the kernel reads threadIdx.x but not blockDim.x, so its block size is fixed "
        "somewhere in it"
        "\n    pass --block, for example --block 256");
  }
  if (Product(plan->block) > kMaxThreads) {
    problems->push_back(StrCat("block: ", ToText(plan->block), " has ", Product(plan->block),
                               " threads; a block has at most ", kMaxThreads));
  } else if (entry.maximum_block.has_value() &&
             Product(plan->block) > Product(*entry.maximum_block)) {
    problems->push_back(StrCat("block: ", ToText(plan->block), " has more threads than the ",
                               Product(*entry.maximum_block),
                               " of the kernel's __launch_bounds__"));
  }
}

void PlanGrid(const LaunchRequest& request, const NameLookup& lookup, const LaunchExtent& extent,
              LaunchPlan* plan, std::vector<std::string>* problems) {
  const IndexUse& use = plan->entry.index_use;
  if (!request.grid.empty()) {
    ReadDimensions("grid", request.grid, lookup, &plan->grid, problems);
    return;
  }
  auto blocks = [](int64_t count, uint32_t threads) {
    return static_cast<uint32_t>((count + threads - 1) / threads);
  };
  if (!use.block[0] && !use.block[1] && !use.block[2]) {
    plan->grid = {1, 1, 1};
    return;
  }
  std::string why;
  std::string example = "--grid 64";
  if (use.block[2]) {
    why = "the kernel reads blockIdx.z";
    example = "--grid 16x16x4";
  } else if (use.block[1]) {
    if (use.threads_per_block[0] && use.threads_per_block[1] && extent.rows > 0 &&
        extent.columns > 0) {
      plan->grid = {blocks(extent.columns, plan->block[0]), blocks(extent.rows, plan->block[1]), 1};
      return;
    }
    why = use.threads_per_block[0] && use.threads_per_block[1]
              ? "no parameters say how many rows and columns there are"
              : "the kernel reads blockIdx.y but not blockDim, so the part of a block is fixed "
                "somewhere in it";
    example = "--grid 'ceil(cols/64),ceil(rows/64)'";
  } else if (use.threads_per_block[0] && use.thread[0] && extent.elements > 0) {
    plan->grid = {blocks(extent.elements, plan->block[0]), 1, 1};
    return;
  } else {
    why = use.threads_per_block[0]
              ? "no parameter says how many elements there are"
              : "the kernel does not read blockDim.x, so the part of a block is not known";
    if (extent.rows > 0) example = StrCat("--grid ", extent.rows, " for one block per row");
  }
  problems->push_back(StrCat("grid: ", why, "\n    pass --grid, for example ", example));
}

}  // namespace ops_debug::runner
