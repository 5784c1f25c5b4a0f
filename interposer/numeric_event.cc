// The site knows types and origins, the device values and the launch.
#include "interposer/numeric_event.h"

#include <bit>
#include <string_view>

#include "interposer/event_sender.h"
#include "interposer/fault_event.h"
#include "interposer/launch_record.h"

namespace ops_debug::interposer {
namespace {

using shadow::NumericSite;
using shadow::PublishedNumeric;

constexpr const char* kOperandNames[] = {"a", "b", "c"};

static_assert(static_cast<uint32_t>(proto_enums::NumericalFaultKind::kNanCreated) ==
                  shadow::kNumericNanCreated &&
              static_cast<uint32_t>(proto_enums::NumericalFaultKind::kVanished) ==
                  shadow::kNumericVanished &&
              static_cast<uint32_t>(proto_enums::NumericalFaultKind::kIndexOverflow) ==
                  shadow::kNumericIndexOverflow &&
              static_cast<uint32_t>(proto_enums::NumericalFaultKind::kMatrixInput) ==
                  shadow::kNumericMatrixInput);

// Infinite or NaN.
bool IsExceptional(std::string_view type, uint64_t bits) {
  if (type == "f32") return (bits & 0x7f800000) == 0x7f800000;
  if (type == "f64") return (bits & 0x7ff0000000000000) == 0x7ff0000000000000;
  if (type == "f16") return (bits & 0x7c00) == 0x7c00;
  if (type == "bf16") return (bits & 0x7f80) == 0x7f80;
  return false;
}

int64_t SignExtended(std::string_view type, uint64_t bits) {
  if (type == "s32") return static_cast<int32_t>(bits);
  if (type == "u32") return static_cast<int64_t>(bits & 0xffffffff);
  if (type == "s16") return static_cast<int16_t>(bits);
  if (type == "u16") return static_cast<int64_t>(bits & 0xffff);
  return static_cast<int64_t>(bits);
}

LaunchDescription LaunchOf(uint64_t launch_id) {
  LaunchDescription launch;
  LaunchRecord record;
  if (FindLaunch(launch_id, &record)) {
    launch = interposer::Describe(record);
  } else if (launch_id != ~0ull) {
    launch.launch_id = launch_id;
  }
  return launch;
}

// Where the value that matters was made.
const shadow::Site* OriginOf(const NumericSite& site, const PublishedNumeric& published) {
  const uint64_t kind = published.key % shadow::kNumericKinds;
  for (const shadow::NumericOrigin& origin : site.origins) {
    if (kind == shadow::kNumericWidenedRounded || kind == shadow::kNumericIndexOverflow)
      return &origin.site;
    if (origin.operand < site.operand_types.size() &&
        IsExceptional(site.operand_types[origin.operand], published.operands[origin.operand])) {
      return &origin.site;
    }
  }
  return nullptr;
}

NumericalFaultEvent MakeEvent(const LoadedModule& module, const NumericSite& site,
                              const PublishedNumeric& published) {
  NumericalFaultEvent event;
  event.kind = static_cast<proto_enums::NumericalFaultKind>(published.key % shadow::kNumericKinds);
  event.site = interposer::Describe(site.site);
  event.launch = LaunchOf(published.launch_id);
  event.block = {published.block[0], published.block[1], published.block[2]};
  event.thread = {published.thread[0], published.thread[1], published.thread[2]};
  for (size_t i = 0; i < site.operand_types.size() && i < 3; i++) {
    if (site.operand_types[i].empty()) continue;
    event.operands.push_back({kOperandNames[i], site.operand_types[i], published.operands[i]});
  }
  if (!site.result_type.empty()) {
    event.has_result = true;
    event.result = {"result", site.result_type, published.result};
  }
  if (event.kind == proto_enums::NumericalFaultKind::kIndexOverflow) {
    event.exact_value = static_cast<int64_t>(published.extra);
    event.wrapped_value = SignExtended(site.result_type, published.result);
  }
  if (const shadow::Site* origin = OriginOf(site, published)) {
    event.has_origin = true;
    event.origin = interposer::Describe(*origin);
  }
  event.module_id = module.id;
  event.engine = "ptx";
  return event;
}

}  // namespace

void ReportNumericFault(const LoadedModule& module, const PublishedNumeric& published,
                        const NumericCounts& counts) {
  const uint64_t index = published.key / shadow::kNumericKinds;
  if (index >= module.code.numeric_sites.size()) return;
  NumericalFaultEvent event = MakeEvent(module, module.code.numeric_sites[index], published);
  event.count = counts.count;
  event.executions = counts.executions;
  event.worst = counts.worst;
  Send(event);
}

void ReportWidenedConstants(const LoadedModule& module, KernelRecord& kernel, uint64_t launch_id) {
  if (!kernel.plan || kernel.plan->precision.constants.empty() ||
      kernel.constants_told.exchange(true))
    return;
  for (const uint32_t index : kernel.plan->precision.constants) {
    const NumericSite& site = module.code.numeric_sites[index];
    PublishedNumeric found{};
    found.key = shadow::NumericKey(index, shadow::kNumericConstantWidened);
    found.launch_id = launch_id;
    found.operands[0] = site.constant_bits;
    found.result = site.widened_bits;
    Send(MakeEvent(module, site, found));
  }
}

}  // namespace ops_debug::interposer
