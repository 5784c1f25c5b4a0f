#include "test/shadow/race/race_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

#include "shadow/device/race_range_ptx.inc"

constexpr uint32_t kSlots = 64;
constexpr uint32_t kSharedWords = (48 * 1024 + 1024) / 4;

template <class T>
T* At(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

RaceRun::RaceRun() {
  channel_ = Zeros(sizeof(RaceChannel));
  directory_ = Zeros(kRaceDirectoryEntries * sizeof(uint64_t));
  null_table_ = Zeros(kRaceTableEntries * sizeof(uint64_t));
  std::fill_n(At<uint64_t>(directory_), kRaceDirectoryEntries, null_table_);
  shared_cells_ = Zeros(uint64_t{kSlots} * kSharedWords * kBytesPerWord);
  named_ = Zeros(uint64_t{kSlots} * kNamedWords * sizeof(uint64_t));
}

uint64_t RaceRun::Zeros(uint64_t size_bytes) {
  const uint64_t address = memory_.Allocate(size_bytes);
  if (address == 0) throw std::runtime_error("no memory");
  std::memset(At<void>(address), 0, size_bytes);
  return address;
}

void RaceRun::Cover(uint64_t address, uint64_t size_bytes) {
  for (uint64_t chunk = address >> kRaceChunkShift;
       chunk <= (address + size_bytes - 1) >> kRaceChunkShift; chunk++) {
    uint64_t& table = At<uint64_t>(directory_)[chunk >> (kRaceDirectoryShift - kRaceChunkShift)];
    if (table == null_table_) table = Zeros(kRaceTableEntries * sizeof(uint64_t));
    uint64_t& entry = At<uint64_t>(table)[chunk & (kRaceTableEntries - 1)];
    if (entry == 0) entry = Zeros(kRaceChunkBytes);
  }
}

void RaceRun::SetOrder(bool unordered, RaceLaunch* launch) {
  launch->ordered_below = unordered ? 1 : next_ticket_;
  if (!unordered || next_ticket_ == 1) return;
  const TicketRange all{1, next_ticket_ - 1};
  launch->unordered = Zeros(sizeof all);
  std::memcpy(At<void>(launch->unordered), &all, sizeof all);
  launch->unordered_count = 1;
}

void RaceRun::Operation(uint64_t address, uint64_t size_bytes, bool is_write, bool unordered) {
  RaceRange range{};
  range.launch.channel = channel_;
  range.launch.directory = directory_;
  range.launch.first_ticket = next_ticket_;
  SetOrder(unordered, &range.launch);
  range.launch_id = next_ticket_++;
  range.begin = address;
  range.end = address + size_bytes;
  range.is_write = is_write ? 1 : 0;
  auto loaded = emulator::Program::Load(kRaceRangePtx, memory_);
  if (!loaded.ok()) throw std::runtime_error(loaded.error().ToString());
  emulator::LaunchConfig config;
  config.grid.x = 2;
  config.block.x = 64;
  config.parameters = std::as_bytes(std::span(&range, 1));
  const emulator::LaunchOutcome outcome =
      emulator::Run(**loaded, *(*loaded)->FindKernel(kRaceRangeKernel), config,
                    emulator::DeviceModel{}, memory_, 1);
  if (!outcome.ok) throw std::runtime_error(outcome.error.message);
}

uint64_t RaceRun::Buffer(uint64_t size_bytes) {
  const uint64_t address = Zeros(size_bytes);
  Cover(address, size_bytes);
  return address;
}

void RaceRun::Launch(const std::string& ptx, const std::string& kernel,
                     const std::vector<uint64_t>& parameters, const RaceLaunchOptions& options,
                     const Checks& checks) {
  auto module = Instrument(ptx, Rewrite::kMemoryChecks, checks);
  if (!module.ok()) throw std::runtime_error(module.error().ToString());
  const auto plan = std::find_if(module->kernels.begin(), module->kernels.end(),
                                 [&](const KernelPlan& known) { return known.name == kernel; });
  if (plan == module->kernels.end() || plan->twin.empty()) throw std::runtime_error("no twin");
  plan_ = plan->races;
  auto loaded = emulator::Program::Load(module->ptx, memory_);
  if (!loaded.ok()) throw std::runtime_error(loaded.error().ToString());
  const emulator::Program& program = **loaded;
  for (const std::string& name : plan_.variables) {
    uint64_t address = 0, size_bytes = 0;
    if (program.FindVariable(name, &address, &size_bytes)) Cover(address, size_bytes);
  }

  std::vector<std::byte> buffer(plan->launch_parameter_offset + plan->launch_parameter_bytes);
  std::memcpy(buffer.data(), parameters.data(),
              std::min<size_t>(parameters.size() * 8, plan->parameter_bytes));
  std::byte* const extra = buffer.data() + plan->launch_parameter_offset;
  const LaunchHeader header{next_ticket_};
  std::memcpy(extra, &header, sizeof header);
  // Everything is in bounds.
  for (size_t i = 0; i < plan->slots.size(); i++) {
    const BoundsEntry all{0, ~0ull};
    std::memcpy(extra + sizeof header + i * sizeof all, &all, sizeof all);
  }
  const uint32_t blocks = options.grid.x * options.grid.y * options.grid.z;
  if (plan_.checked) {
    RaceLaunch launch{};
    launch.channel = channel_;
    launch.shared_cells = shared_cells_;
    launch.shared_words = kSharedWords;
    launch.shared_slot_bytes = uint64_t{kSharedWords} * kBytesPerWord;
    launch.directory = directory_;
    launch.named_barriers = named_;
    launch.slot_mask = kSlots - 1;
    launch.first_ticket = next_ticket_;
    SetOrder(options.unordered, &launch);
    launch.site_base = static_cast<uint32_t>(sites_.size());
    launch.tracked = options.tracked;
    std::memcpy(extra + plan_.launch_offset, &launch, sizeof launch);
  }
  next_ticket_ += blocks;
  sites_.insert(sites_.end(), module->sites.begin(), module->sites.end());

  emulator::LaunchConfig config;
  config.grid = options.grid;
  config.block = options.block;
  config.dynamic_shared_bytes = options.dynamic_shared_bytes;
  config.schedule_seed = options.schedule_seed;
  config.cooperative = options.cooperative;
  config.parameters = buffer;
  const emulator::Kernel* const twin = program.FindKernel(plan->twin);
  if (twin == nullptr) throw std::runtime_error("the twin is not in the module");
  const emulator::LaunchOutcome outcome =
      emulator::Run(program, *twin, config, emulator::DeviceModel{}, memory_, 1);
  if (!outcome.ok) throw std::runtime_error(outcome.error.message);
  thread_instructions_ = outcome.thread_instructions;
}

std::vector<RaceRecord> RaceRun::Records() const {
  std::vector<RaceRecord> records;
  for (const RaceRecord& record : At<const RaceChannel>(channel_)->records) {
    if (record.state == 2) records.push_back(record);
  }
  return records;
}

uint64_t RaceRun::conflicts() const { return At<const RaceChannel>(channel_)->conflicts; }

std::string RaceRun::Text() const {
  static constexpr const char* kAccesses[] = {"read", "write", "atomic"};
  static constexpr const char* kRelations[] = {"same-warp", "same-block", "other-block",
                                               "other-launch"};
  std::vector<std::string> lines;
  for (const RaceRecord& record : Records()) {
    const auto place = [&](uint32_t site) {
      return site == 0 ? std::string("?") : "`" + SiteOf(site).instruction + "`";
    };
    std::string line;
    if (record.kind == kRecordRace) {
      line = std::string(kAccesses[record.first_access]) + " " + place(record.first_site) + " / " +
             kAccesses[record.second_access] + " " + place(record.second_site) + " " +
             kRelations[record.relation] + (record.flags & kRecordShared ? " shared" : " global");
    } else {
      static constexpr const char* kKinds[] = {"race", "divergent", "exited", "incomplete", "mask"};
      line = std::string(kKinds[record.kind]) + " " + place(record.second_site);
      if (record.first_site != 0) line += " / " + place(record.first_site);
      if (record.missing != 0) line += " missing " + std::to_string(record.missing);
    }
    if (record.flags & kRecordUnproven) line += " unproven";
    if (record.flags & kRecordSameValue) line += " same-value";
    if (record.flags & kRecordScope) line += " scope";
    lines.push_back(line + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace ops_debug::shadow
