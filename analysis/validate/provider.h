// From what a user calls an operator to what computes it: a command (proto/provider.h) or saved
// tensors.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/validate/operator_book.h"

namespace ops_debug::analysis {

// Where the programs that providers run in are.
struct ProviderTools {
  std::string folder = ".";  // names without a folder are looked up here
  std::string runner, reference_program, python_folder, emulator_folder;
  std::string python = "python3";
  bool emulator = false;  // kernels run on the CPU device
};

struct Provider {
  std::string name;                      // as the user wrote it
  std::vector<std::string> command;      // empty: saved tensors
  std::string saved;                     // path of the tensors
  std::vector<std::string> environment;  // "NAME=VALUE", added to our own
  std::string source;                    // file of the operator, if it is one
  OperatorEntry settings;                // what ops-debug.yaml says; its place is empty otherwise
};

// `name` is, in this order: builtin:NAME; a file (.cu, .ptx, .onnx, .npy, .npz, .safetensors, a
// folder of tensors, FILE.py:FUNCTION, FILE.cu:KERNEL); an operator of the book; a dotted Python
// name (torch.nn.Conv2d, torch.ops.ns.op, numpy.fft.fft, package.module:function); a short name:
// NAME.cu, NAME.ptx, NAME.py, NAME.onnx in the folder, or a kernel NAME in a .cu file there. Errors
// (kNotFound, kInvalidArgument) list what there is.
absl::StatusOr<Provider> ResolveProvider(const std::string& name, const OperatorBook& book,
                                         const ProviderTools& tools);

// One of the environment's variables with something in front: "PYTHONPATH=FOLDER:what it was".
std::string WithPathInFront(const char* variable, const std::string& folder);

}  // namespace ops_debug::analysis
