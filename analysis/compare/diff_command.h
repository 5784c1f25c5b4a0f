// `ops-debug diff`: two files or folders of tensors held against each other.
#pragma once

namespace ops_debug::analysis {

// `argv[0]` is "diff"; the flags are those of launcher/flags.cc. Returns the exit code: 0, 86 or
// --error-exitcode if they differ, 2 for wrong usage, 3 if a file cannot be read or written.
int DiffMain(int argc, char** argv);

}  // namespace ops_debug::analysis
