// The file of a capture holds what proto/capture.proto says.
#include "interposer/capture_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include "proto/capture.pb.h"

namespace ops_debug::interposer {
namespace {

Capture Example() {
  Capture capture;
  capture.model = "sm_90";
  capture.modules.push_back(
      {7, ".version 8.0\n", {{"counter", 0x7000, std::string("\1\0\0\0", 4)}}});
  capture.memory.push_back({0x1000, std::string("abcdefgh"), {{2, 3}, {6, 1}}, true});
  CapturedLaunch launch;
  launch.description.launch.launch_id = 9;
  launch.description.launch.kernel = "_Z5firstv";
  launch.description.launch.grid = {4, 3, 2};
  launch.description.launch.block = {32, 1, 1};
  launch.description.launch.dynamic_shared_bytes = 64;
  launch.description.module_id = 7;
  launch.cluster = {2, 1, 1};
  launch.parameters = std::string("\0\1\2\3", 4);
  launch.cooperative = launch.programmatic = true;
  capture.launches.push_back(launch);
  TensorMapRecord map;
  map.opaque[127] = std::byte{5};
  map.tiled = true;
  map.data_type = 7;
  map.rank = 2;
  map.address = 0x1000;
  map.global_dim = {16, 8};
  map.global_strides = {64};
  map.box_dim = {16, 1};
  map.element_strides = {1, 1};
  map.swizzle = 3;
  capture.tensor_maps.push_back(map);
  return capture;
}

std::string Path(const char* name) {
  return std::string("capture_file_test.") + std::to_string(getpid()) + "." + name;
}

TEST_CASE("everything of a capture is in its file") {
  const std::string path = Path("all");
  uint64_t bytes = 0;
  int error = 0;
  REQUIRE(WriteCapture(Example(), path, &bytes, &error));
  proto::Capture read;
  {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(read.ParseFromIstream(&file));
    file.clear();
    CHECK(static_cast<uint64_t>(file.seekg(0, std::ios::end).tellg()) == bytes);
  }
  std::remove(path.c_str());
  CHECK(read.model() == "sm_90");
  REQUIRE(read.modules_size() == 1);
  CHECK(read.modules(0).module_id() == 7);
  CHECK(read.modules(0).ptx() == ".version 8.0\n");
  CHECK(read.modules(0).variables(0).name() == "counter");
  CHECK(read.modules(0).variables(0).address() == 0x7000);
  CHECK(read.modules(0).variables(0).content() == std::string("\1\0\0\0", 4));
  REQUIRE(read.memory_size() == 1);
  CHECK(read.memory(0).address() == 0x1000);
  CHECK(read.memory(0).content() == "abcdefgh");
  CHECK(read.memory(0).host());
  REQUIRE(read.memory(0).unwritten_size() == 2);
  CHECK(read.memory(0).unwritten(1).offset() == 6);
  CHECK(read.memory(0).unwritten(1).size() == 1);
  REQUIRE(read.launches_size() == 1);
  const proto::CaptureLaunch& launch = read.launches(0);
  CHECK(launch.launch_id() == 9);
  CHECK(launch.module_id() == 7);
  CHECK(launch.kernel() == "_Z5firstv");
  CHECK(launch.grid().y() == 3);
  CHECK(launch.block().x() == 32);
  CHECK(launch.cluster().x() == 2);
  CHECK(launch.dynamic_shared_bytes() == 64);
  CHECK(launch.parameters() == std::string("\0\1\2\3", 4));
  CHECK((launch.cooperative() && launch.programmatic() && launch.after_all()));
  REQUIRE(read.tensor_maps_size() == 1);
  CHECK(read.tensor_maps(0).opaque().size() == kTensorMapBytes);
  CHECK(read.tensor_maps(0).opaque()[127] == 5);
  CHECK(read.tensor_maps(0).global_dim(1) == 8);
  CHECK(read.tensor_maps(0).global_strides_size() == 1);
  CHECK(read.tensor_maps(0).swizzle() == 3);
}

TEST_CASE("a launch that says no clusters has none in the file") {
  Capture capture = Example();
  capture.launches[0].cluster = {};
  const std::string path = Path("no_cluster");
  uint64_t bytes = 0;
  int error = 0;
  REQUIRE(WriteCapture(capture, path, &bytes, &error));
  proto::Capture read;
  std::ifstream file(path, std::ios::binary);
  CHECK(read.ParseFromIstream(&file));
  std::remove(path.c_str());
  CHECK(!read.launches(0).has_cluster());
}

TEST_CASE("a file that cannot be made is an error and leaves nothing") {
  uint64_t bytes = 0;
  int error = 0;
  CHECK(!WriteCapture(Example(), "no/such/folder/x.capture", &bytes, &error));
  CHECK(error == ENOENT);
}

}  // namespace
}  // namespace ops_debug::interposer
