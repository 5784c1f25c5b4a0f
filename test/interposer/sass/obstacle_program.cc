// Prints why the second engine is off; nothing if it is on.
#include <cstdio>

#include "interposer/sass_engine.h"

int main() {
  std::fputs(ops_debug::interposer::SassEngineObstacle().c_str(), stdout);
  return 0;
}
