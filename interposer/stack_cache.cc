// Only stacks that lie in the thread's own stack area are cached: there, everything above the
// current frame can be read. Coroutines that run on memory of their own are walked each time.
#include "interposer/stack_cache.h"

#include <pthread.h>
#include <unwind.h>

#include <array>
#include <mutex>
#include <new>

// First and last byte of this library in memory, from the linker.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace ops_debug::interposer {
namespace {

constexpr size_t kSets = 64;
constexpr size_t kWays = 4;
constexpr size_t kMaxSlots = HostStack::kMaxFrames + 16;  // ours come first

struct Slot {
  uintptr_t address = 0;  // on the stack
  uintptr_t value = 0;    // the return address that was found there
};

struct KnownStack {
  uintptr_t frame = 0;  // of CachedHostStack; 0: empty
  uint64_t hint = 0;
  size_t slot_count = 0;
  std::array<Slot, kMaxSlots> slots;
  SharedHostStack stack;
};

struct ThreadCache {
  uintptr_t low = 0, high = 0;  // the thread's stack area
  std::array<std::unique_ptr<KnownStack>, kSets * kWays> known;
  std::array<uint8_t, kSets> next{};  // way to replace
};

[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadCache* t_cache = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_ended = false;

// Hooks may still run in a thread after this, without a cache.
void FreeCache(void* cache) {
  t_cache = nullptr;
  t_ended = true;
  delete static_cast<ThreadCache*>(cache);
}

ThreadCache* MakeCache() {
  static pthread_key_t key;
  static const bool keyed = pthread_key_create(&key, &FreeCache) == 0;
  if (!keyed || t_ended) return nullptr;
  auto cache = std::make_unique<ThreadCache>();
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  void* low = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
    cache->low = reinterpret_cast<uintptr_t>(low);
    cache->high = cache->low + bytes;
  }
  pthread_attr_destroy(&attributes);
  if (pthread_setspecific(key, cache.get()) != 0) return nullptr;
  return t_cache = cache.release();
}

struct Walk {
  KnownStack* known;
  HostStack* stack;
  const ThreadCache* cache;
  bool inside_library = true;
  bool cacheable = true;
};

_Unwind_Reason_Code OnFrame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const uintptr_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  // The canonical frame address of the callee: its return address lies right below (System V ABI,
  // AMD64).
  const uintptr_t slot = _Unwind_GetCFA(context) - sizeof(uintptr_t);
  if (slot > walk.known->frame) {
    const bool readable = slot >= walk.cache->low && slot < walk.cache->high;
    if (!readable || walk.known->slot_count == kMaxSlots ||
        *reinterpret_cast<const uintptr_t*>(slot) != address) {
      walk.cacheable = false;  // a signal's frame, say
    } else {
      walk.known->slots[walk.known->slot_count++] = {slot, address};
    }
  }
  if (walk.inside_library) {
    if (address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
        address < reinterpret_cast<uintptr_t>(_end)) {
      return _URC_NO_REASON;
    }
    walk.inside_library = false;
  }
  walk.stack->return_addresses[walk.stack->count++] = address;
  return walk.stack->count < HostStack::kMaxFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

__attribute__((no_sanitize_address)) bool Same(const KnownStack& known) {
  for (size_t i = 0; i < known.slot_count; i++) {
    if (*reinterpret_cast<const volatile uintptr_t*>(known.slots[i].address) !=
        known.slots[i].value) {
      return false;
    }
  }
  return true;
}

SharedHostStack EmptyStack() noexcept {
  static const HostStack empty;
  return {SharedHostStack(), &empty};  // owns nothing, allocates nothing
}

// `frame`: of the caller, whose callers' slots lie above it.
__attribute__((noinline)) SharedHostStack Capture(uintptr_t frame, uint64_t hint) {
  ThreadCache* cache = t_cache ? t_cache : MakeCache();
  if (!cache || frame < cache->low || frame >= cache->high) {
    return std::make_shared<const HostStack>(CaptureHostStack());
  }
  const uint64_t mixed = (frame ^ hint * 0x9E3779B97F4A7C15ull) * 0x9E3779B97F4A7C15ull;
  const size_t set = mixed >> 58;
  static_assert(kSets == 1u << (64 - 58));
  std::unique_ptr<KnownStack>* ways = &cache->known[set * kWays];
  for (size_t way = 0; way < kWays; way++) {
    const KnownStack* known = ways[way].get();
    if (known && known->frame == frame && known->hint == hint && Same(*known)) return known->stack;
  }
  auto known = std::make_unique<KnownStack>();
  known->frame = frame;
  known->hint = hint;
  auto stack = std::make_shared<HostStack>();
  Walk walk{known.get(), stack.get(), cache};
  _Unwind_Backtrace(&OnFrame, &walk);
  known->stack = std::move(stack);
  SharedHostStack result = known->stack;
  if (walk.cacheable && known->slot_count != 0) {
    ways[cache->next[set]] = std::move(known);
    cache->next[set] = static_cast<uint8_t>((cache->next[set] + 1) % kWays);
  }
  return result;
}

}  // namespace

__attribute__((noinline)) SharedHostStack CachedHostStack(uint64_t hint) noexcept {
  try {
    return Capture(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)), hint);
  } catch (...) {
    return EmptyStack();
  }
}

}  // namespace ops_debug::interposer
