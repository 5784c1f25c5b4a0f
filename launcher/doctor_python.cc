// Python packages whose kernels ops-debug has to deal with: found by asking the interpreter that
// programs will run under, in a child with a time limit. Nothing is imported to find a version;
// torch alone is imported, because only it knows which architectures it was built for.
#include <sstream>

#include "launcher/doctor.h"
#include "launcher/probe.h"

namespace ops_debug::launcher {
namespace {

constexpr std::chrono::seconds kListPatience{15};
constexpr std::chrono::seconds kImportPatience{30};

constexpr char kList[] = R"(
import sys, site, importlib.util
from importlib import metadata
print("python", sys.version.split()[0], sys.executable, sep="\t")
for folder in dict.fromkeys(p for p in sys.path if p.endswith("-packages")):
    print("folder", folder, sep="\t")
names = {"torch": ["torch"], "triton": ["triton", "pytorch-triton"],
         "cupy": ["cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"], "jax": ["jax"], "jaxlib": ["jaxlib"],
         "onnxruntime": ["onnxruntime-gpu", "onnxruntime"], "rmm": ["rmm-cu13", "rmm-cu12", "rmm"],
         "tensorflow": ["tensorflow"], "numpy": ["numpy"]}
for module, distributions in names.items():
    try:
        if importlib.util.find_spec(module) is None:
            continue
    except Exception:
        continue
    version = ""
    for name in distributions:
        try:
            version = metadata.version(name)
            break
        except Exception:
            pass
    print("package", module, version, sep="\t")
)";

constexpr char kArchitectures[] = R"(
import torch
print("version", torch.version.cuda or "", sep="\t")
print("architectures", torch._C._cuda_getArchFlags() or "", sep="\t")
)";

struct Package {
  const char* module;
  Standing standing;
  const char* cost;
  const char* advice;
};

// What each means for checking.
constexpr Package kPackages[] = {
    {"triton", Standing::kGood, "", ""},
    {"cupy", Standing::kGood, "", ""},
    {"jax", Standing::kGood, "", ""},
    {"jaxlib", Standing::kGood, "", ""},
    {"onnxruntime", Standing::kNote,
     "its CUDA kernels are SASS only: checked by the second engine (Sanitizer API), or listed as "
     "not checked",
     ""},
    {"tensorflow", Standing::kNote,
     "its CUDA kernels are SASS only: checked by the second engine (Sanitizer API), or listed as "
     "not checked",
     ""},
    {"rmm", Standing::kGood, "", ""},
    {"numpy", Standing::kGood, "", ""},
};

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  fields.resize(3);
  return fields;
}

Observation ExamineTorch(const Machine& machine, const std::string& python,
                         const std::string& version) {
  Observation torch{.id = "torch", .subject = "torch", .found = version};
  const ProbeAnswer answer = Probe::OfProgram({python, "-c", kArchitectures}, machine.environment,
                                              machine.Limit(kImportPatience))
                                 .Finish();
  std::string architectures;
  std::string cuda;
  std::istringstream in(answer.output);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Split(line);
    if (fields[0] == "architectures") architectures = fields[1];
    if (fields[0] == "version") cuda = fields[1];
  }
  torch.details = {{"version", version}, {"cuda", cuda}, {"architectures", architectures}};
  if (!answer.ok()) {
    torch.standing = Standing::kLimits;
    torch.found += "; import torch " + answer.Trouble();
    torch.cost = "programs that use it will have the same trouble";
    torch.advice = "try: " + python + " -c 'import torch'";
    return torch;
  }
  if (cuda.empty()) {
    torch.found += ", without CUDA";
    torch.cost = "it makes no GPU calls";
    torch.standing = Standing::kNote;
    return torch;
  }
  torch.found += ", CUDA " + cuda + ", built for " + architectures;
  torch.standing = Standing::kNote;
  torch.cost = architectures.find("compute_") == std::string::npos
                   ? "its own kernels are SASS only: checked by the second engine (Sanitizer API), "
                     "or listed as not checked; Triton's and your extensions' kernels have PTX"
                   : "its own kernels carry PTX for the newest architecture only: on older GPUs "
                     "the second engine (Sanitizer API) checks them, or they are listed as not "
                     "checked";
  return torch;
}

}  // namespace

void ExaminePython(const Machine& machine, std::vector<std::string>* site_packages,
                   Observations& observations) {
  const std::string python = machine.FindProgram("python3");
  if (python.empty()) {
    observations.push_back({.id = "python",
                            .subject = "Python",
                            .standing = Standing::kNote,
                            .found = "no python3 in PATH",
                            .cost = "none, unless your program is a Python program",
                            .advice = ""});
    return;
  }
  const ProbeAnswer answer =
      Probe::OfProgram({python, "-c", kList}, machine.environment, machine.Limit(kListPatience))
          .Finish();
  if (!answer.ok()) {
    observations.push_back({.id = "python",
                            .subject = "Python",
                            .standing = Standing::kLimits,
                            .found = python + " " + answer.Trouble(),
                            .cost = "its packages are unknown",
                            .advice = "try: " + python + " -c pass"});
    return;
  }
  std::istringstream in(answer.output);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Split(line);
    if (fields[0] == "folder") site_packages->push_back(fields[1]);
    if (fields[0] == "python") {
      observations.push_back({.id = "python",
                              .subject = "Python",
                              .found = fields[1] + ", " + fields[2],
                              .details = {{"version", fields[1]}, {"path", fields[2]}}});
    }
    if (fields[0] != "package") continue;
    const std::string& module = fields[1];
    const std::string version = fields[2].empty() ? "of unknown version" : fields[2];
    if (module == "torch") {
      observations.push_back(ExamineTorch(machine, python, version));
      continue;
    }
    for (const Package& package : kPackages) {
      if (module != package.module) continue;
      observations.push_back({.id = module,
                              .subject = module,
                              .standing = package.standing,
                              .found = version,
                              .cost = package.cost,
                              .advice = package.advice,
                              .details = {{"version", fields[2]}}});
    }
  }
}

}  // namespace ops_debug::launcher
