// Handlers for the tests of the hook layer, in place of the semantic ones: each leaves a mark that
// the program sees.
#include <stdexcept>

#include "interposer/event_sender.h"
#include "interposer/hooks.h"
#include "interposer/process.h"

namespace ops_debug::interposer {
namespace {

// Result codes that no driver returns: the handler ran, and this is what the real function said.
CUresult Marked(CUresult result) { return static_cast<CUresult>(static_cast<int>(result) + 10000); }

void SendNote(const char* text) {
  DiagnosticEvent event;
  event.text = text;
  Send(event);
}

const bool g_registered =
    (AtProcessEnd([](EndPhase phase) {
       SendNote(phase == EndPhase::kDriverUsable ? "flush: driver usable" : "flush: driver gone");
     }),
     true);

}  // namespace

OPS_DEBUG_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size_bytes) {
  const CUresult result = real(address, size_bytes);
  *address |= 0xab00000000;
  InvalidLaunchEvent event;
  event.api = real.symbol();
  event.launch.stack = ResolveHostStack(CaptureHostStack());
  Send(event);
  return result;
}

OPS_DEBUG_HOOK(cuMemFree_v2, CUdeviceptr address) { return Marked(real(address)); }

OPS_DEBUG_HOOK(cuMemFreeAsync, CUdeviceptr address, CUstream stream) {
  return Marked(real(address, stream));
}
OPS_DEBUG_HOOK_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync)

OPS_DEBUG_HOOK(cuMemGetInfo_v2, size_t* free, size_t* total) { return real(free, total); }

// Fails before (grid width 1) or after (2) the program's call is made.
OPS_DEBUG_HOOK(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
               unsigned shared_bytes, CUstream stream, void** parameters, void** extra) {
  if (grid_x == 1) throw std::runtime_error("planted, before");
  real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
       parameters, extra);
  throw std::runtime_error("planted, after");
}

OPS_DEBUG_HOOK(cuCtxSynchronize) { return real(); }

}  // namespace ops_debug::interposer
