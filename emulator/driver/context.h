// Contexts as other files need them.
#pragma once

#include "emulator/driver/state.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {

CUctx_st* NewContext(Device& device, unsigned flags, bool is_primary);

// The active primary context, made active if it is not; counts no reference.
CUctx_st* ActivatePrimary(Device& device);

// Frees everything that lives in `context`, which has no work left: modules, streams, events,
// memory. The handle stays.
void ClearContext(CUctx_st& context);

// body(Driver&, CUctx_st&) with the lock held and nothing left to do in the context. Not to be
// called with the lock held.
template <class Body>
CUresult AfterDraining(CUcontext handle, Body body) {
  if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  for (;;) {
    TheDriver().scheduler->Drain(handle);
    bool has_work = false;
    const CUresult status = InDriver([&](Driver& driver) -> CUresult {
      CUctx_st* context = driver.contexts.Find(handle);
      if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
      has_work = driver.scheduler->HasWork(handle);  // submitted by another thread meanwhile
      return has_work ? CUDA_SUCCESS : body(driver, *context);
    });
    if (!has_work) return status;
  }
}

}  // namespace ops_debug::emulator
