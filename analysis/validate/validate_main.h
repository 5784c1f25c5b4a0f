// The verb `validate` of ops-debug-compare.
#pragma once

namespace ops_debug::analysis {

// Exit code: 0 passes, 86 (--error-exitcode) fails, 2 usage, 3 a provider failed, 4 could not be
// judged.
int ValidateMain(int argc, char** argv);

}  // namespace ops_debug::analysis
