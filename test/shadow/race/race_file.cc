// Runs one kernel of a PTX file under the race checks, with as many buffers of 1 MiB as it has
// parameters, and prints what was recorded: for people who look at one kernel.
//   race_file IN.ptx KERNEL BLOCKS THREADS [DYNAMIC_SHARED_BYTES]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "test/shadow/race/race_run.h"

int main(int argc, char** argv) {
  using namespace ops_debug::shadow;
  if (argc < 5) {
    std::fprintf(stderr, "usage: race_file IN.ptx KERNEL BLOCKS THREADS [DYNAMIC_SHARED_BYTES]\n");
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  RaceLaunchOptions options;
  options.grid.x = static_cast<uint32_t>(std::atoi(argv[3]));
  options.block.x = static_cast<uint32_t>(std::atoi(argv[4]));
  if (argc > 6)
    std::puts(
        Instrument(text, Rewrite::kMemoryChecks, {.memory = false, .races = true})->ptx.c_str());
  if (argc > 5) options.dynamic_shared_bytes = static_cast<uint32_t>(std::atoi(argv[5]));
  try {
    RaceRun run;
    std::vector<uint64_t> buffers;
    for (int i = 0; i < 8; i++) buffers.push_back(run.Buffer(1 << 20));
    uint64_t counts[3] = {};
    run.Launch(text, argv[2], buffers, options, {.memory = false});
    counts[0] = run.thread_instructions();
    run.Launch(text, argv[2], buffers, options, {.memory = true});
    counts[1] = run.thread_instructions();
    run.Launch(text, argv[2], buffers, options);
    counts[2] = run.thread_instructions();
    const RacePlan& plan = run.plan();
    std::printf("%u accesses checked, %u proved; checked: %d %s\n", plan.checked_accesses,
                plan.proved_accesses, plan.checked, plan.reason.c_str());
    for (const RaceSlot& slot : plan.slots)
      std::printf("parameter %u:%s%s%s\n", slot.parameter_offset, slot.reads ? " read" : "",
                  slot.writes ? " written" : "", slot.forms.empty() ? "" : " known form");
    std::printf("thread instructions: %llu plain, %llu memory, %llu races (%.2fx)\n",
                static_cast<unsigned long long>(counts[0]),
                static_cast<unsigned long long>(counts[1]),
                static_cast<unsigned long long>(counts[2]),
                static_cast<double>(counts[2]) / static_cast<double>(counts[0]));
    std::printf("%s%llu conflicts\n", run.Text().c_str(),
                static_cast<unsigned long long>(run.conflicts()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
