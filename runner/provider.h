// The runner as a provider of ops-debug validate (proto/provider.h): a kernel's inputs come from a
// request, its outputs go into the response. runner/README.md has the rules.
#pragma once

#include "absl/status/status.h"
#include "runner/options.h"

namespace ops_debug::runner {

// Answers every pair of request and response, or prints a description. The kernel is compiled once.
// Error codes: kUnimplemented: this kernel cannot do it (one line); kAborted: a CUDA call failed or
// the source does not compile; others as of the runner.
absl::Status ServeProvider(const Options& options);

}  // namespace ops_debug::runner
