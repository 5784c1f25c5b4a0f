// --leak-check: memory that the program allocated and never freed.
#pragma once

#include "interposer/driver_api.h"

namespace ops_debug::interposer {

// Sends a Leak for each live allocation of the context, which has just ended with all that was in
// it; null: of all contexts, because the process ends. Does nothing unless --leak-check was given.
// Never throws.
void ReportLeaks(CUcontext context) noexcept;

}  // namespace ops_debug::interposer
