// A program that has its own libprotobuf and abseil, shared, and uses them before and after driver
// calls.
#include <absl/strings/str_cat.h>
#include <cuda.h>
#include <google/protobuf/timestamp.pb.h>

#include <cstdio>
#include <stdexcept>
#include <string>

static std::string RoundTrip(int seconds) {
  google::protobuf::Timestamp sent, received;
  sent.set_seconds(seconds);
  received.ParseFromString(sent.SerializeAsString());
  return absl::StrCat("seconds ", received.seconds());
}

int main() {
  std::printf("%s\n", RoundTrip(1).c_str());
  CUdeviceptr address = 0;
  cuInit(0);
  cuMemAlloc(&address, 5);
  std::printf("address %llx\n", address);
  try {
    throw std::runtime_error(RoundTrip(2));
  } catch (const std::exception& error) {
    std::printf("caught %s\n", error.what());
  }
}
