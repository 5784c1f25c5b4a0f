// Prints its arguments, one a line, and the exit code that the last of them names ("exit=7").
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::puts(argv[i]);
  const char* last = argv[argc - 1];
  return std::strncmp(last, "exit=", 5) == 0 ? std::atoi(last + 5) : 0;
}
