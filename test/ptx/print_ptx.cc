// print_ptx FILE: parses a PTX file and prints the module to standard output.
#include <fstream>
#include <iostream>
#include <iterator>

#include "ptx/parser.h"
#include "ptx/printer.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: print_ptx FILE\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) {
    std::cerr << "cannot read " << argv[1] << "\n";
    return 2;
  }
  auto module = ops_debug::ptx::Parse({std::istreambuf_iterator<char>(file), {}});
  if (!module.ok()) {
    std::cerr << argv[1] << ":" << module.error().ToString() << "\n";
    return 1;
  }
  std::cout << ops_debug::ptx::Print(*module);
  return std::cout.flush() ? 0 : 2;
}
