// What each compiled set of lane operations offers to the dispatcher. Included once per set, with
// OPS_DEBUG_ISA defined. No guard on purpose: every inclusion declares another namespace.
#include "emulator/isa/lane_ops.h"
#include "emulator/isa/matrix_kernels.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {

void RegisterIntegerLanes(LaneRegistry& registry);
void RegisterBitLanes(LaneRegistry& registry);
void RegisterFloatLanes(LaneRegistry& registry);
void RegisterHalfLanes(LaneRegistry& registry);
void RegisterConvertLanes(LaneRegistry& registry);
void RegisterNarrowLanes(LaneRegistry& registry);
void RegisterCompareLanes(LaneRegistry& registry);
const LaneSupport& Support();
const MatrixKernels& Matrix();

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
