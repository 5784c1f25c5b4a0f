// The contract of a provider: a process that computes an operator. Tensors in, tensors out, both as
// .safetensors.
//
//   COMMAND ... REQUEST.safetensors RESPONSE.safetensors
//
// The request holds the inputs in the operator's order, named after its parameters where the caller
// knows them, else "input0", "input1", ...; its metadata:
//   "attributes"  a JSON object: {"padding": 1, "groups": 32}; what it does not name takes the
//   operator's default "precision"   "as-is" (compute in the inputs' types) or "float64" (upcast
//   the inputs, compute and answer in float64) "gradients"   "1": also answer "grad.NAME" for each
//   floating input NAME, of the sum over all outputs of output * cotangent,
//                 with the cotangents in the request as "cotangent.OUTPUT" (in the order of
//                 outputs), if it can
//   "seed"        for operators with randomness
//   "outputs"     a JSON list of the outputs' names, shapes and dtypes, if the caller knows them:
//   [["out", [1, 32], "float32"]]
// The response holds the outputs in order ("output0", ... or their names), then gradients, and its
// metadata may hold
//   "description" one line for the report: "torch.nn.Conv2d 2.11 on the CPU"
//   "source"      file of the operator
// Exit code 0: the response is whole. Otherwise the last line of stderr says what is wrong, and
//   kProviderCannot  means that this provider cannot do what was asked (no gradients, a missing
//   package): it says what to install or pass.
#pragma once

namespace ops_debug::proto {

constexpr int kProviderCannot = 4;
constexpr char kMetadataAttributes[] = "attributes";
constexpr char kMetadataPrecision[] = "precision";
constexpr char kMetadataGradients[] = "gradients";
constexpr char kMetadataSeed[] = "seed";
constexpr char kMetadataOutputs[] = "outputs";
constexpr char kMetadataDescription[] = "description";
constexpr char kMetadataSource[] = "source";
constexpr char kCotangentPrefix[] = "cotangent.";
constexpr char kGradientPrefix[] = "grad.";

}  // namespace ops_debug::proto
