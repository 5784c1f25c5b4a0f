// A program with its own libprotobuf (shared) and abseil, which also uses the driver: the preload
// library must not get in the way of either. Prints a round trip through protobuf, an abseil
// string, and what the driver said.
#include <absl/strings/str_cat.h>
#include <cuda.h>
#include <dlfcn.h>
#include <google/protobuf/struct.pb.h>

#include <cstdio>

int main() {
  google::protobuf::Struct message;
  (*message.mutable_fields())["answer"].set_number_value(42);
  std::string bytes;
  message.SerializeToString(&bytes);
  google::protobuf::Struct copy;
  const bool parsed = copy.ParseFromString(bytes);
  std::printf(
      "%s\n",
      absl::StrCat("protobuf ", parsed ? copy.fields().at("answer").number_value() : -1).c_str());

  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::printf("no driver\n");
    return 1;
  }
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(driver, "cuInit"));
  const auto count =
      reinterpret_cast<decltype(&cuDeviceGetCount)>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const CUresult result = init(0);
  std::printf("driver %d %d\n", static_cast<int>(result),
              count(&devices) == CUDA_SUCCESS && devices > 0 ? 1 : 0);
  return 0;
}
