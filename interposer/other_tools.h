// Other tools in the process: found by the libraries they load, the variables they set and the
// tracer of the process, and named in the report with what that costs. Only looks.
#pragma once

namespace ops_debug::interposer {

// Sends a Diagnostic for each that is there now. Call it when the process announces itself. May
// throw bad_alloc.
void ReportOtherTools();

}  // namespace ops_debug::interposer
