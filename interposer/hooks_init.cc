// cuInit: the moment from which the driver can name the device, so the moment to announce the
// process. It also makes the exit hook run before the driver's own: exit handlers run in reverse
// order of registration.
#include "interposer/exact_checks.h"
#include "interposer/hooks.h"
#include "interposer/process_state.h"
#include "interposer/python_stack.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"

namespace ops_debug::interposer {

OPS_DEBUG_HOOK(cuInit, unsigned int flags) {
  // A program in Python comes here with the interpreter's lock, which is needed once to learn how
  // to read its frames.
  if (ChecksAnything()) CapturePythonStack();
  // Its callbacks see all modules only if it is there before the driver.
  if (ChecksMemory()) StartSassEngine();
  ExactChecks();  // the CPU device must know what to check before it does anything
  const CUresult result = real(flags);
  AnnounceProcess();
  return result;
}

}  // namespace ops_debug::interposer
