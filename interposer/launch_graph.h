// Which kernels a graph runs: so that each launch of a graph counts them, checked or not.
#pragma once

#include "interposer/module_registry.h"

namespace ops_debug::interposer {

inline constexpr const char* kDeviceUpdatable =
    "its graph node can be changed from the device, behind our back";

// The graph was instantiated, or updated from `graph`: its kernel nodes are listed anew, those of
// child graphs and of conditional bodies, too.
void NoteGraphExec(CUgraphExec exec, CUgraph graph);
void ForgetGraphExec(CUgraphExec exec);
// One node of an instantiated graph got new parameters, or was switched on or off.
void NoteExecNode(CUgraphExec exec, CUgraphNode node, CUfunction function);
void NoteExecNodeEnabled(CUgraphExec exec, CUgraphNode node, bool enabled);
// A child graph node of an instantiated graph got other contents.
void NoteExecChild(CUgraphExec exec, CUgraphNode node, CUgraph child);
// Bodies of a conditional node: the driver does not tell them again.
void NoteConditionalBodies(CUgraphNode node, const CUgraph* bodies, unsigned int count);

// The graph was launched: counts its kernels. False: it was instantiated where we did not see it.
bool CountReplay(CUgraphExec exec);

}  // namespace ops_debug::interposer
