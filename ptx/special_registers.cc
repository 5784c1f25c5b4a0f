// One list of the special registers; numbered families (%envreg0...%envreg31) are one entry each.
#include "ptx/special_registers.h"

#include <algorithm>
#include <iterator>

namespace ops_debug::ptx {
namespace {

// Sorted.
constexpr std::string_view kNames[] = {
    "%aggr_smem_size",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%cluster_ctaid",
    "%cluster_ctarank",
    "%cluster_nctaid",
    "%cluster_nctarank",
    "%clusterid",
    "%ctaid",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nclusterid",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_cap",
    "%reserved_smem_offset_end",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
};

// A number of one or two digits below `limit`.
bool IsNumberBelow(std::string_view text, int limit) {
  if (text.empty() || text.size() > 2) return false;
  int value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  return value < limit;
}

}  // namespace

bool IsSpecialRegister(std::string_view name) {
  if (name.empty()) return false;
  if (name[0] != '%') return name == "WARP_SZ";
  if (std::binary_search(std::begin(kNames), std::end(kNames), name)) return true;
  if (name.starts_with("%envreg")) return IsNumberBelow(name.substr(7), 32);
  if (name.starts_with("%reserved_smem_offset_")) return IsNumberBelow(name.substr(22), 2);
  if (name.starts_with("%pm")) {
    std::string_view rest = name.substr(3);
    if (rest.ends_with("_64")) rest.remove_suffix(3);
    return IsNumberBelow(rest, 8);
  }
  return false;
}

}  // namespace ops_debug::ptx
