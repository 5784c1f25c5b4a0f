// The runner's options by Boost.Program_options, completed by `// ops-debug:` comments in the
// kernel's source; the command line wins.
#include "runner/options.h"

#include <boost/program_options.hpp>
#include <sstream>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

namespace po = boost::program_options;

po::options_description Described() {
  po::options_description options("Options", 110, 70);
  auto text = [] { return po::value<std::string>(); };
  auto texts = [] { return po::value<std::vector<std::string>>(); };
  po::options_description_easy_init add = options.add_options();
  add("help,h", "print this text");
  add("kernel,k", text(), "a CUDA source, a PTX file, or a ready program");
  add("entry,e", text(),
      "the kernel to launch, if the file has several: its name, or a part of it");
  add("input-shape,s", texts(),
      "shape of the inputs (pointers to const): given once, of all; repeated, one per input in "
      "order");
  add("arg,a", texts(),
      "NAME=VALUE of a parameter. Numbers may be expressions over other integers. Buffers: "
      "shape:64x64, element type (f32 f64 f16 bf16 s8 u8 ... u64), content (random zeros ones iota "
      "nan), "
      "null; joined by ':'. Structs: zeros, hex:BYTES");
  add("grid,g", text(), "blocks: 64x64, or expressions: 'ceil(N/64),ceil(M/64)'");
  add("block,b", text(), "threads per block: 16x16, or expressions");
  add("block-size", text(), "the same as --block, for one dimension");
  add("shared-bytes", text(), "dynamic shared memory in bytes");
  add("seed", po::value<uint64_t>()->default_value(0), "of the random contents");
  add("save-outputs", text(), "folder for the outputs, as NAME.npy");
  add("debug-build",
      "compile with -G, nothing inlined: variables and lines are exact, the code is slow");
  add("nvcc-option", texts(), "passed on to nvcc, for example --nvcc-option=-Iinclude");
  add("provider", text(),
      "serve ops-debug validate: a kernel file, followed by pairs of request and response "
      "(.safetensors)");
  add("describe", text(),
      "with --provider: print inputs, outputs and attributes for this question");
  add("backward", text(), "with --provider: kernels of the gradients, joined by commas");
  add("check-boundary",
      "accepted for clarity: buffers always have exactly the size of their shape");
  return options;
}

po::options_description WithPositional() {
  po::options_description options;
  options.add(Described());
  options.add_options()("argument", po::value<std::vector<std::string>>());
  return options;
}

std::string Text(const po::variables_map& values, const char* name) {
  return values.count(name) != 0 ? values[name].as<std::string>() : std::string();
}

std::vector<std::string> Texts(const po::variables_map& values, const char* name) {
  return values.count(name) != 0 ? values[name].as<std::vector<std::string>>()
                                 : std::vector<std::string>();
}

absl::Status ReadLaunch(const po::variables_map& values, LaunchRequest* launch) {
  for (const std::string& text : Texts(values, "input-shape")) {
    absl::StatusOr<Shape> shape = ParseShape(text);
    if (!shape.ok())
      return absl::InvalidArgumentError(StrCat("--input-shape ", shape.status().message()));
    launch->input_shapes.push_back(*shape);
  }
  for (const std::string& text : Texts(values, "arg")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return absl::InvalidArgumentError(StrCat(
          "--arg ", text, ": expected NAME=VALUE\n  hint: --arg n=1024, or --arg out=shape:64x64"));
    }
    if (!launch->arguments.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          StrCat("--arg ", text.substr(0, equals),
                 " is given twice\n  hint: give each parameter one value"));
    }
  }
  launch->grid = Text(values, "grid");
  launch->block = Text(values, "block");
  launch->shared_bytes = Text(values, "shared-bytes");
  const std::string block_size = Text(values, "block-size");
  if (!block_size.empty() && !launch->block.empty()) {
    return absl::InvalidArgumentError(
        "--block and --block-size are both given\n  hint: they say the same: give one of them");
  }
  if (!block_size.empty()) launch->block = block_size;
  return absl::OkStatus();
}

absl::Status ReadProvider(const po::variables_map& values, Options* options) {
  options->provider = values.count("provider") != 0;
  if (!options->provider) {
    for (const char* name : {"describe", "backward"}) {
      if (values.count(name) == 0) continue;
      return absl::InvalidArgumentError(StrCat(
          "--", name, " belongs to --provider FILE\n  hint: ops-debug validate passes both"));
    }
    return absl::OkStatus();
  }
  options->kernel = Text(values, "provider");
  options->describe = Text(values, "describe");
  const std::string backward = Text(values, "backward");
  if (!backward.empty()) {
    for (std::string_view name : StrSplit(backward, ",")) options->backward.emplace_back(name);
  }
  const size_t files = options->program_arguments.size();
  if (options->describe.empty() ? files == 0 || files % 2 != 0 : files != 0) {
    return absl::InvalidArgumentError(
        "--provider FILE takes pairs REQUEST RESPONSE, or --describe JSON\n  hint: ops-debug "
        "validate passes them");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  po::variables_map values;
  try {
    po::positional_options_description positional;
    positional.add("argument", -1);
    po::store(
        po::command_line_parser(argc, argv).options(WithPositional()).positional(positional).run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    return absl::InvalidArgumentError(
        StrCat(error.what(), "\n  hint: ops-debug-runner --help lists the options"));
  }
  Options options;
  options.help = values.count("help") != 0;
  if (options.help) return options;
  options.kernel = Text(values, "kernel");
  options.program_arguments = Texts(values, "argument");
  if (absl::Status status = ReadProvider(values, &options); !status.ok()) return status;
  if (options.kernel.empty() && !options.program_arguments.empty()) {
    options.kernel = options.program_arguments.front();
    options.program_arguments.erase(options.program_arguments.begin());
  }
  if (options.kernel.empty()) {
    return absl::InvalidArgumentError(
        "nothing to run\n  hint: ops-debug-runner --kernel FILE.cu --input-shape 1024x1024");
  }
  if (absl::Status status = ReadLaunch(values, &options.launch); !status.ok()) return status;
  options.entry = Text(values, "entry");
  options.debug_build = values.count("debug-build") != 0;
  options.seed = values["seed"].as<uint64_t>();
  options.save_outputs = Text(values, "save-outputs");
  options.nvcc_options = Texts(values, "nvcc-option");
  return options;
}

std::string HelpText() {
  std::ostringstream text;
  text << R"(ops-debug-runner --kernel FILE [options] [-- ARGUMENTS]

Runs one kernel file: compiles it, makes its buffers and scalars, launches it once. FILE is a CUDA source without main(),
a CUDA source with main() (built and run with ARGUMENTS), a PTX file, or a ready program.

  ops-debug-runner --kernel examples/matmul_kernel.cu --input-shape 1024x1024

)" << Described()
       << R"(
What is not given is derived, and where that is not sure, the runner stops and shows what to pass:
  inputs   pointers to const: random contents of the given shape
  outputs  other pointers: zeros. Shape of a matrix product if the integers are M, N and K and two inputs fit;
           else the inputs' common shape. Without any input, the given shapes are those of the outputs, in order
  integers by name, from the inputs' shapes: M N K; size count numel total length; rows; cols columns dim hidden
           stride lda; height width channels batch. A lone n is the number of elements of one-dimensional inputs
  others   floats 1 (eps 1e-5), bool false
  block    .reqntid, __launch_bounds__, or 256 if the kernel reads blockDim.x and no threadIdx.y
  grid     enough blocks for all elements, if the index is made of blockIdx and blockDim; 1 if blockIdx is not read
A comment before the kernel can say it:
  // ops-debug: block=256 grid=ceil(N/64),ceil(M/64) shared=4096 bins=shape:64
Expressions know + - * / % ( ) ceil floor min max, integer parameters, and A.size, A.dim0, A.dim1 of buffer A.

Exit codes: 0, or the program's own; 1 a CUDA call failed; 2 wrong usage; 3 nvcc or the device is missing, or the source
does not compile.
)";
  return text.str();
}

}  // namespace ops_debug::runner
