// The replay itself: captured memory, modules and launches through ordinary driver calls.
#pragma once

#include "proto/capture.pb.h"
#include "replayer/driver.h"

namespace ops_debug::replayer {

// Makes all launches of `capture`, whose pages are mapped (address_space.h), and waits for them.
// Contents are changed on the way.
Outcome Replay(const Driver& driver, proto::Capture* capture);

}  // namespace ops_debug::replayer
