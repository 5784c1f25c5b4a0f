// What `ops-debug diff` without files compares after runs with --capture.
#pragma once

#include <string>

namespace ops_debug::launcher {

// Puts `folder`, an absolute path, in front of the one noted last (proto/state_folder.h). Where
// nothing can be noted, nothing is: the run matters more.
void NoteCapture(const std::string& folder);

}  // namespace ops_debug::launcher
