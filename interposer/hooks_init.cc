// cuInit: the moment from which the driver can name the device, so the moment to announce the
// process. It also makes the exit hook run before the driver's own: exit handlers run in reverse
// order of registration.
#include "interposer/hooks.h"
#include "interposer/process_state.h"

namespace ops_debug::interposer {

OPS_DEBUG_HOOK(cuInit, unsigned int flags) {
  const CUresult result = real(flags);
  AnnounceProcess();
  return result;
}

}  // namespace ops_debug::interposer
