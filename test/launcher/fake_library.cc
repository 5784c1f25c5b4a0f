// Loaded in place of the preload library and of the emulator's driver.
#include <cstdlib>

// For the launcher's look at devices; finds none.
extern "C" int cuInit(unsigned) { return 100; }

// Lets a test see from inside the target that the library got there.
__attribute__((constructor)) static void Announce() {
  if (std::getenv("OPS_DEBUG_RING") != nullptr) setenv("FAKE_LIBRARY_LOADED", "1", 1);
}
