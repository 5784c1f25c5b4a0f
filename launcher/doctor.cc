// The command: examines part by part, prints a table or JSON, and sums up in an exit code.
#include "launcher/doctor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace ops_debug::launcher {
namespace {

constexpr Flag kDoctorTable[] = {
    {"format", "text|json", "of the answer (text)"},
    // For tests: what stands in front of the system's paths, and the time limit of probes.
    {"root", "DIR", nullptr},
    {"patience", "SECONDS", nullptr},
    {"help", nullptr, "show this"},
};

const char* NameOf(Standing standing) {
  switch (standing) {
    case Standing::kGood:
      return "ok";
    case Standing::kNote:
      return "note";
    case Standing::kLimits:
      return "limits";
    case Standing::kMissing:
      return "missing";
  }
  return "";
}

struct Summary {
  bool gpu_checking = false;
  bool emulator = false;
  std::string text;
  int exit_code = kExitToolFailure;
};

Summary SumUp(const GpuAnswer& gpu, const OwnPieces& own, const Observations& observations) {
  Summary summary;
  const auto is_missing = [&](const char* id) {
    return std::any_of(observations.begin(), observations.end(), [&](const Observation& each) {
      return each.id == id && each.standing == Standing::kMissing;
    });
  };
  const bool can_run = own.interposer && !is_missing("shared-memory");
  summary.gpu_checking = can_run && gpu.usable && !is_missing("environment");
  summary.emulator = can_run && own.emulator;
  if (summary.gpu_checking) {
    const auto limits =
        std::count_if(observations.begin(), observations.end(),
                      [](const Observation& each) { return each.standing == Standing::kLimits; });
    summary.text = limits == 0 ? "programs can be checked on the GPU"
                               : "programs can be checked on the GPU, with " +
                                     std::to_string(limits) + (limits == 1 ? " limit" : " limits");
    summary.exit_code = 0;
  } else if (summary.emulator) {
    summary.text = "programs cannot be checked on a GPU here; kernels can on the emulator";
    summary.exit_code = kExitNotChecked;
  } else {
    summary.text = "ops-debug does not work here";
  }
  return summary;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// Environment variables and paths may hold any bytes; JSON holds UTF-8 only.
std::string AsUtf8(const std::string& text) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : 2;
    bool valid = i + length <= text.size() && lead < 0xf5 && (lead < 0x80 || lead >= 0xc2);
    for (size_t k = 1; valid && k < length; ++k) valid = (text[i + k] & 0xc0) == 0x80;
    clean += valid ? text.substr(i, length) : "\xef\xbf\xbd";
    i += valid ? length : 1;
  }
  return clean;
}

std::string Json(const Summary& summary, const Observations& observations) {
  const auto pair = [](const std::string& key, const std::string& value) {
    return Quoted(key) + ": " + Quoted(AsUtf8(value));
  };
  std::ostringstream out;
  out << "{\"schema\": 1,\n \"gpu_checking\": " << (summary.gpu_checking ? "true" : "false")
      << ", \"emulator\": " << (summary.emulator ? "true" : "false") << ", "
      << pair("summary", summary.text) << ",\n \"observations\": [";
  bool first = true;
  for (const Observation& each : observations) {
    out << (first ? "\n" : ",\n") << "  {" << pair("id", each.id) << ", "
        << pair("subject", each.subject) << ", " << pair("standing", NameOf(each.standing)) << ", "
        << pair("found", each.found);
    if (!each.cost.empty()) out << ", " << pair("cost", each.cost);
    if (!each.advice.empty()) out << ", " << pair("advice", each.advice);
    std::string details;
    for (const auto& [name, value] : each.details) {
      if (!value.empty()) details += (details.empty() ? "" : ", ") + pair(name, value);
    }
    if (!details.empty()) out << ", \"details\": {" << details << '}';
    out << '}';
    first = false;
  }
  out << "\n ]}\n";
  return out.str();
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string Table(const Summary& summary, const Observations& observations) {
  size_t width = 0;
  for (const Observation& each : observations) width = std::max(width, each.subject.size());
  constexpr size_t kStandingWidth = 9;
  std::string text;
  for (const Observation& each : observations) {
    text += Padded(NameOf(each.standing), kStandingWidth) + Padded(each.subject, width + 2) +
            each.found + '\n';
    const std::string margin(kStandingWidth, ' ');
    if (!each.cost.empty()) text += margin + "means: " + each.cost + '\n';
    if (!each.advice.empty()) text += margin + "do:    " + each.advice + '\n';
  }
  return text + '\n' + summary.text + '\n';
}

}  // namespace

const std::span<const Flag> kDoctorFlags = kDoctorTable;

std::string Machine::Variable(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string Machine::Read(const std::string& path) const {
  constexpr size_t kMostBytes = 64 << 10;
  // Not blocking: what looks like a file may be a pipe.
  const int file = open(Path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return "";
  std::string text(kMostBytes, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(file, text.data() + size, text.size() - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  text.resize(size);
  return text;
}

bool Machine::Has(const std::string& path) const { return access(Path(path).c_str(), F_OK) == 0; }

std::string Machine::FindProgram(const std::string& name) const {
  std::istringstream folders(Variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + '/' + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

int Doctor(const Installation& installation, const FlagValues& values) {
  if (!values.operands.empty() || !values.command.empty()) {
    return Tell({"doctor takes no program", "ops-debug doctor"});
  }
  const std::string format = values.Get("format", "text");
  if (format != "text" && format != "json") {
    return Tell({"--format " + format + " is not known", "text or json"});
  }
  const Environment environment = InheritedEnvironment();
  const Machine machine{installation, environment, values.Get("root"),
                        std::chrono::seconds(std::atoi(values.Get("patience", "0").c_str()))};
  // Printed in this order. Python before the toolkit: packages bring libraries along.
  Observations gpu, python, toolkit, system, tools, own;
  const GpuAnswer answer = ExamineGpu(machine, gpu);
  std::vector<std::string> site_packages;
  ExaminePython(machine, &site_packages, python);
  ExamineToolkit(machine, site_packages, answer.cuda_version, toolkit);
  ExamineSystem(machine, system);
  ExamineOtherTools(machine, tools);
  const OwnPieces pieces = ExamineInstallation(machine, own);
  Observations all;
  for (Observations* part : {&gpu, &toolkit, &system, &tools, &python, &own}) {
    std::move(part->begin(), part->end(), std::back_inserter(all));
  }
  const Summary summary = SumUp(answer, pieces, all);
  std::cout << (format == "json" ? Json(summary, all) : Table(summary, all)) << std::flush;
  return summary.exit_code;
}

}  // namespace ops_debug::launcher
