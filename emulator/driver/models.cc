// Product data. Sources: NVIDIA's architecture whitepapers (A100, GA102, Ada, H100) and data sheets
// for multiprocessors, memory, caches and clocks; CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability", for what a multiprocessor holds.
#include "emulator/driver/models.h"

#include <algorithm>
#include <cctype>

namespace ops_debug::emulator {
namespace {

struct Product {
  std::string_view architecture;  // of which this product is the representative; "" if of none
  std::string_view name;
  DeviceModel model;
};

const std::vector<Product>& Products() {
  constexpr uint32_t kKiB = 1024;
  constexpr uint64_t kMiB = 1024 * 1024;
  static const std::vector<Product>& products = *new std::vector<Product>{
      {"sm_80",
       "a100",
       {.name = "NVIDIA A100-SXM4-80GB",
        .compute_major = 8,
        .compute_minor = 0,
        .multiprocessors = 108,
        .shared_bytes_per_block_optin = 163 * kKiB,
        .shared_bytes_per_multiprocessor = 164 * kKiB,
        .memory_bytes = 81920 * kMiB,
        .l2_bytes = 40 * kMiB,
        .clock_khz = 1'410'000,
        .memory_clock_khz = 1'593'000}},
      {"sm_86",
       "a10",
       {.name = "NVIDIA A10",
        .compute_major = 8,
        .compute_minor = 6,
        .multiprocessors = 72,
        .shared_bytes_per_block_optin = 99 * kKiB,
        .shared_bytes_per_multiprocessor = 100 * kKiB,
        .threads_per_multiprocessor = 1536,
        .blocks_per_multiprocessor = 16,
        .memory_bytes = 24576 * kMiB,
        .l2_bytes = 6 * kMiB,
        .clock_khz = 1'695'000,
        .memory_clock_khz = 6'251'000,
        .memory_bus_bits = 384,
        .single_to_double_ratio = 64}},
      {"sm_89",
       "l40s",
       {.name = "NVIDIA L40S",
        .compute_major = 8,
        .compute_minor = 9,
        .multiprocessors = 142,
        .shared_bytes_per_block_optin = 99 * kKiB,
        .shared_bytes_per_multiprocessor = 100 * kKiB,
        .threads_per_multiprocessor = 1536,
        .blocks_per_multiprocessor = 24,
        .memory_bytes = 49152 * kMiB,
        .l2_bytes = 96 * kMiB,
        .clock_khz = 2'520'000,
        .memory_clock_khz = 9'001'000,
        .memory_bus_bits = 384,
        .single_to_double_ratio = 64}},
      {"sm_90",
       "h100",
       {.name = "NVIDIA H100 80GB HBM3"}},  // what DeviceModel describes by default
      {"",
       "h200",
       {.name = "NVIDIA H200",
        .memory_bytes = 143'771 * kMiB,
        .l2_bytes = 60 * kMiB,
        .memory_clock_khz = 3'201'000,
        .memory_bus_bits = 6144}}};
  return products;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  const size_t first = lower.find_first_not_of(' ');
  const size_t last = lower.find_last_not_of(' ');
  return first == std::string::npos ? "" : lower.substr(first, last - first + 1);
}

// False if there is no such model.
bool Find(const std::string& name, DeviceModel* model) {
  if (name.empty()) return false;
  for (const Product& product : Products()) {
    const bool by_architecture = name == product.architecture;
    if (!by_architecture && name != product.name) continue;
    *model = product.model;
    // The name says what it is, and still contains the product's for programs that look for it.
    model->name = "ops-debug CPU device (" + (by_architecture ? name : product.model.name) + ")";
    return true;
  }
  return false;
}

}  // namespace

std::vector<DeviceModel> ChooseModels(std::string_view names, std::string* why) {
  constexpr size_t kMaxDevices = 16;
  std::vector<DeviceModel> models;
  if (names.empty()) names = "sm_90";
  while (true) {
    const size_t comma = names.find(',');
    const std::string name = Lower(names.substr(0, comma));
    DeviceModel model;
    if (!Find(name, &model) || models.size() == kMaxDevices) {
      *why = models.size() == kMaxDevices
                 ? "more than " + std::to_string(kMaxDevices) + " devices to emulate"
                 : "no model of a GPU named '" + name + "'; there are";
      if (models.size() < kMaxDevices) {
        for (const Product& product : Products()) {
          if (!product.architecture.empty()) *why += ' ' + std::string(product.architecture);
          *why += ' ' + std::string(product.name);
        }
      }
      return {};
    }
    models.push_back(std::move(model));
    if (comma == std::string_view::npos) return models;
    names.remove_prefix(comma + 1);
  }
}

bool RunsOn(std::string_view target, const DeviceModel& model, std::string* why) {
  constexpr std::string_view kPrefix = "sm_";
  uint32_t number = 0;
  size_t end = kPrefix.size();
  if (!target.starts_with(kPrefix)) return true;  // the parser has accepted it
  while (end < target.size() && std::isdigit(static_cast<unsigned char>(target[end])) != 0) {
    number = number * 10 + uint32_t(target[end++] - '0');
  }
  const std::string_view suffix = target.substr(end);
  const uint32_t ours = ArchitectureNumber(model);
  const bool is_same_family = number / 10 == ours / 10 && number <= ours;
  const bool runs = suffix == "a"   ? number == ours
                    : suffix == "f" ? is_same_family
                                    : number <= ours;
  if (runs) return true;
  const std::string own = "sm_" + std::to_string(ours);
  *why = "the module is PTX for " + std::string(target) + ", which " + model.name +
         (suffix.empty() ? " is too old for" : " is not") + "; compile it for " + own +
         " or emulate " + (number <= ours ? "that architecture" : "a newer device") +
         " (--emulate)";
  return false;
}

std::vector<uint32_t> SharedCarveouts(const DeviceModel& model) {
  std::vector<uint32_t> carveouts;
  for (const uint32_t kib : {0u, 8u, 16u, 32u, 64u, 100u, 132u, 164u, 196u, 228u}) {
    if (kib * 1024 <= model.shared_bytes_per_multiprocessor) carveouts.push_back(kib * 1024);
  }
  return carveouts;
}

}  // namespace ops_debug::emulator
