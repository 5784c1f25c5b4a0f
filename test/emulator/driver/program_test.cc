// Whole programs on the emulator: built by nvcc with the shared and with the static run-time, and
// linked with -lcuda. OPS_DEBUG_PROGRAMS is the folder that CMake builds them in,
// OPS_DEBUG_EMULATOR that of the emulator's libraries.
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

namespace {

struct Run {
  std::string output;  // stdout
  std::string errors;  // stderr
  int exit_code = -1;
};

std::string ReadAll(FILE* stream) {
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), stream)) {
    text.append(buffer.data(), n);
  }
  return text;
}

Run RunProgram(const std::string& command) {
  const std::string errors_path = std::string(OPS_DEBUG_PROGRAMS) + "/stderr.txt";
  const std::string line = "LD_LIBRARY_PATH=" OPS_DEBUG_EMULATOR " " OPS_DEBUG_PROGRAMS "/" +
                           command + " 2>" + errors_path;
  Run run;
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  run.output = ReadAll(pipe);
  run.exit_code = WEXITSTATUS(pclose(pipe));
  FILE* errors = std::fopen(errors_path.c_str(), "r");
  REQUIRE(errors != nullptr);
  run.errors = ReadAll(errors);
  std::fclose(errors);
  return run;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a program linked with -lcuda runs") {
  const Run run = RunProgram("linked_program");
  CHECK(run.output == "42\n");
  CHECK(run.errors == "");
}

TEST_CASE("kernels, copies and symbols work through the shared run-time") {
  const Run run = RunProgram("cudart_program basics");
  CHECK(run.output ==
        "malloc: cudaSuccess\ncopy in: cudaSuccess\nsymbol in: cudaSuccess\nlaunch: cudaSuccess\n"
        "copy out: cudaSuccess\n1000 2002 4198\nsymbol out: cudaSuccess\n"
        "symbol address: cudaSuccess\nsymbol size: cudaSuccess\n3000 1 16\nfree: cudaSuccess\n");
  CHECK(run.errors == "");
}

TEST_CASE("managed memory and variables are shared with the host") {
  const Run run = RunProgram("cudart_program managed");
  CHECK(run.output == "sync: cudaSuccess\n16\nmanaged: cudaSuccess\nsync: cudaSuccess\n3\n");
}

TEST_CASE("streams, events and callbacks work through the shared run-time") {
  const Run run = RunProgram("cudart_program streams");
  CHECK(run.output ==
        "stream: cudaSuccess\nevent: cudaSuccess\nevent: cudaSuccess\nmalloc async: cudaSuccess\n"
        "record: cudaSuccess\nrecord: cudaSuccess\ncopy: cudaSuccess\nhost function: cudaSuccess\n"
        "callback: cudaSuccess\nfree async: cudaSuccess\nsync: cudaSuccess\nelapsed: cudaSuccess\n"
        "1.5 2 1\n");
}

TEST_CASE("queries describe the device, kernels and pointers") {
  const Run run = RunProgram("cudart_program queries");
  CHECK(run.output ==
        "count: cudaSuccess\ndevice: cudaSuccess\nset device: cudaSuccess\n"
        "set device 1: cudaErrorInvalidDevice\nlast error: cudaErrorInvalidDevice\n"
        "last error: cudaSuccess\nruntime: cudaSuccess\ndriver: cudaSuccess\n"
        "properties: cudaSuccess\n1 0 13000 13000 | 9.0 132 32 232448\nattributes: cudaSuccess\n"
        "occupancy: cudaSuccess\npotential: cudaSuccess\n64 32 64\npointer: cudaSuccess\n0 1\n");
}

TEST_CASE("wrong calls get the run-time's own errors") {
  const Run run = RunProgram("cudart_program errors");
  CHECK(run.output ==
        "block too large: cudaErrorInvalidConfiguration\nno grid: cudaErrorInvalidConfiguration\n"
        "launch bounds: cudaErrorInvalidValue\nshared memory: cudaErrorInvalidValue\n"
        "kind: cudaErrorInvalidMemcpyDirection\nsymbol: cudaErrorInvalidSymbol\n"
        "function: cudaErrorInvalidDeviceFunction\npitch: cudaErrorInvalidPitchValue\n"
        "external: cudaErrorNotSupported\nok: cudaSuccess\n");
  CHECK(run.errors ==
        "ops-debug emulator: cudaDestroyExternalMemory is not supported by this device\n");
}

TEST_CASE("a fault stays until the device is reset, and stderr names the kernel") {
  const Run run = RunProgram("cudart_program fault");
  CHECK(run.output ==
        "malloc: cudaSuccess\nlaunch: cudaSuccess\nsync: cudaErrorIllegalAddress\n"
        "peek: cudaErrorIllegalAddress\nlast error: cudaErrorIllegalAddress\n"
        "malloc: cudaErrorIllegalAddress\nan illegal memory access was encountered\n"
        "reset: cudaSuccess\nmalloc: cudaSuccess\nsync: cudaSuccess\n");
  CHECK(Contains(run.errors, "ops-debug emulator: kernel failed: "));
  CHECK(Contains(run.errors, "write_far"));
}

TEST_CASE("the device works in atexit handlers") {
  const Run run = RunProgram("cudart_program at_exit");
  CHECK(run.output == "sync: cudaSuccess\nmalloc: cudaSuccess\ncopy: cudaSuccess\n9\n");
  CHECK(run.errors == "");
  CHECK(run.exit_code == 0);
}

TEST_CASE("a program with the static run-time is refused with the flag to use") {
  const Run run = RunProgram("cudart_program_static basics");
  CHECK(Contains(run.output, "malloc: cudaErrorNotSupported"));
  CHECK(Contains(run.errors, "nvcc -cudart shared"));
}

TEST_CASE("a program for the per-thread default stream runs") {
  const Run run = RunProgram("cudart_program_per_thread basics");
  CHECK(Contains(run.output, "1000 2002 4198\n"));
  CHECK(run.errors == "");
}

TEST_CASE("a program without PTX is refused with the flag to use") {
  const Run run = RunProgram("cudart_program_sass basics");
  CHECK(Contains(run.output, "symbol in: cudaErrorNoKernelImageForDevice"));
  CHECK(Contains(run.output, "launch: cudaErrorNoKernelImageForDevice"));
  CHECK(Contains(run.errors, "code=compute_90"));
}

TEST_CASE("a captured graph is replayed, updated and changed through the run-time") {
  const Run run = RunProgram("graph_program capture");
  CHECK(run.output ==
        "begin: cudaSuccess\nend: cudaSuccess\ninstantiate: cudaSuccess\nafter capture: 0\n"
        "launch: cudaSuccess\nlaunch: cudaSuccess\nafter two replays: 20\n"
        "update: cudaSuccess 0\nlaunch: cudaSuccess\nafter the update: 120\n"
        "set params: cudaSuccess\nlaunch: cudaSuccess\nafter new parameters: 1120\n"
        "function is scale: 1\n");
  CHECK(run.errors == "");
}

TEST_CASE("a graph with branches in two streams gives what the streams give") {
  const Run run = RunProgram("graph_program branches");
  CHECK(run.output == "sum: 3072 3072\n");
  CHECK(run.errors == "");
}

TEST_CASE("textures and surfaces work through the shared run-time") {
  const Run run = RunProgram("graph_program textures");
  CHECK(run.output ==
        "array: cudaSuccess\ncopy in: cudaSuccess\ntexture: cudaSuccess\nsurface: cudaSuccess\n"
        "sync: cudaSuccess\n0 0.5 1.5 5.5 7\ncopy out: cudaSuccess\n0 2 14\n");
  CHECK(run.errors == "");
}

TEST_CASE("a program of two objects built with -rdc=true is linked from their PTX") {
  const Run run = RunProgram("rdc_program");
  CHECK(run.output == "42 7\n");
  CHECK(run.errors == "");
}
