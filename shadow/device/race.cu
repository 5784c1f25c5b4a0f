// What a kernel instrumented for races calls: at its start, before accesses, behind barriers and at
// what orders memory otherwise. Compiled to PTX by scripts/generate_device_code.py, checked in as
// race_ptx.inc, appended to modules that are instrumented for races (shadow/abi/race_abi.h says
// what cells and stamps are).
//
// Two threads that meet in a cell at the same moment must not overlook each other. A writer puts
// its word into the cell and then looks at the readers; a reader puts its word there and then looks
// at the writer (Dekker's pattern), and words are exchanged atomically, so every writer sees
// exactly the one before it. No fence stands between both steps, as it would wait for everything
// else that the thread has under way: the second step depends on the answer of the first, so it
// leaves when the exchange is done, and both are done where all multiprocessors meet, in the L2
// cache.
//
// Whether a conflict counts: order by barriers is decided exactly. If both sides did what could
// order them otherwise (a release on the one, an acquire on the other, of the scope that it takes),
// the conflict is recorded as unproven; if one of them did not, nothing can have ordered them.
#include "shadow/abi/race_abi.h"

using namespace ops_debug::shadow;

enum Order : uint32_t { kOrdered, kConcurrent, kPerhaps };

struct Place {
  RaceCell* cell;
  RaceSide* side;
  uint64_t address;  // of the word
  bool shared;
};

static __device__ __forceinline__ uint64_t Load(const uint64_t* word) {
  return *static_cast<const volatile uint64_t*>(word);
}
static __device__ __forceinline__ uint64_t Exchange(uint64_t* word, uint64_t value) {
  return atomicExch(reinterpret_cast<unsigned long long*>(word), value);
}
static __device__ __forceinline__ uint64_t CompareAndSwap(uint64_t* word, uint64_t old,
                                                          uint64_t value) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(word), old, value);
}

// The same, behind the atomic operation on a cell that gave `answer`, which is never all ones.
static __device__ __forceinline__ uint64_t LoadBehind(const uint64_t* word, uint64_t answer) {
  return Load(word + (answer == ~0ull ? 1 : 0));
}

static __device__ __forceinline__ uint32_t TicketOf(uint64_t word) {
  return static_cast<uint32_t>(word >> kTicketShift);
}
static __device__ __forceinline__ uint32_t EpochsOf(uint64_t word) {
  return static_cast<uint32_t>(word >> kEpochShift) & ((1u << kEpochBits) - 1);
}
static __device__ __forceinline__ uint32_t ThreadOf(uint64_t word) {
  return static_cast<uint32_t>(word >> kThreadShift) & 1023;
}
static __device__ __forceinline__ uint32_t BytesOf(uint64_t word) {
  return static_cast<uint32_t>(word >> kBytesShift) & 15;
}
// Without thread, bytes, flags.
static __device__ __forceinline__ uint64_t StampOf(uint64_t word) {
  return word >> kEpochShift << kEpochShift;
}

static __device__ __forceinline__ uint64_t* SyncWord(const RaceThread* t, uint32_t ticket,
                                                     uint32_t warp) {
  return reinterpret_cast<RaceChannel*>(t->launch.channel)->sync_ring +
         (ticket % kSyncRingBlocks) * kSyncRingWarps + warp;
}

// What a warp did; everything, if that is no longer known.
static __device__ __forceinline__ uint32_t SyncBits(const RaceThread* t, uint32_t ticket,
                                                    uint32_t warp) {
  const uint64_t word = Load(SyncWord(t, ticket, warp));
  const uint32_t held = static_cast<uint32_t>(word >> kSyncTicketShift);
  return held == ticket ? static_cast<uint32_t>(word) : held < ticket ? 0 : ~0u;
}

extern "C" __device__ __noinline__ uint32_t __ops_debug_race_block_bits(const RaceThread* t,
                                                                        uint32_t ticket) {
  uint32_t bits = 0;
#pragma unroll 1
  for (uint32_t warp = 0; warp < kSyncRingWarps; warp++) bits |= SyncBits(t, ticket, warp);
  return bits;
}

extern "C" __device__ __noinline__ void __ops_debug_race_set_bits(RaceThread* t, uint32_t bits) {
  t->done |= bits;
  const uint32_t ticket = TicketOf(t->stamp);
  uint64_t* const word = SyncWord(t, ticket, ThreadOf(t->stamp) >> 5);
  uint64_t held = Load(word);
  while (static_cast<uint32_t>(held >> kSyncTicketShift) <= ticket) {
    const uint64_t old_bits = held >> kSyncTicketShift == ticket ? static_cast<uint32_t>(held) : 0;
    const uint64_t next = static_cast<uint64_t>(ticket) << kSyncTicketShift | old_bits | bits;
    if (next == held) break;
    const uint64_t seen = CompareAndSwap(word, held, next);
    if (seen == held) break;
    held = seen;
  }
}

extern "C" __device__ __noinline__ bool __ops_debug_race_unordered(const RaceThread* t,
                                                                   uint32_t ticket) {
  const TicketRange* const ranges = reinterpret_cast<const TicketRange*>(t->launch.unordered);
#pragma unroll 1
  for (uint32_t i = 0; i < t->launch.unordered_count; i++) {
    if (ticket >= ranges[i].first && ticket <= ranges[i].last) return true;
  }
  return false;
}

// Was what `old` says done before what `mine` says is being done? `kind` is kReadOne for a write.
static __device__ __forceinline__ Order OrderOf(const RaceThread* t, uint64_t old, uint64_t mine,
                                                uint64_t kind, bool shared, uint32_t* relation) {
  const uint32_t ticket = TicketOf(mine), old_ticket = TicketOf(old);
  if (old_ticket != ticket || kind == kReadBlocks) {
    if (shared || old_ticket < t->launch.ordered_below) return kOrdered;
    const bool same_launch = old_ticket - t->launch.first_ticket < t->blocks;
    *relation = same_launch ? kOtherBlock : kOtherLaunch;
    if (same_launch || old_ticket >= t->launch.first_ticket) return kConcurrent;
    return __ops_debug_race_unordered(t, old_ticket) ? kConcurrent : kOrdered;
  }
  const uint32_t thread = ThreadOf(mine), old_thread = ThreadOf(old);
  if (kind == kReadOne && thread == old_thread) return kOrdered;
  const uint32_t epochs = EpochsOf(mine), old_epochs = EpochsOf(old), bits = t->narrow_bits;
  if (epochs >> bits != old_epochs >> bits) return kOrdered;
  const uint32_t warp = thread >> 5, old_warp = old_thread >> 5;
  if (warp == old_warp && kind != kReadWarps) {
    *relation = kSameWarp;
    const bool lone = (SyncBits(t, ticket, warp) & kSyncLoneLanes) != 0;
    if (old_epochs < epochs) {
      return (t->warp_mask >> (old_thread & 31) & 1) != 0 ? kOrdered : kPerhaps;
    }
    return lone ? kPerhaps : kConcurrent;
  }
  *relation = kSameBlock;
  if (t->named != 0) {
    const uint64_t* const before = reinterpret_cast<const uint64_t*>(t->named) + warp * 32;
    // Of several warps only the last is known.
    if (warp == old_warp || StampOf(old) < Load(before + old_warp)) return kOrdered;
  }
  return kConcurrent;
}

// Could fences, flags or locks have ordered the two?
extern "C" __device__ __noinline__ bool __ops_debug_race_may_order(const RaceThread* t,
                                                                   uint64_t old, uint64_t mine,
                                                                   uint32_t relation,
                                                                   bool first_known) {
  const uint32_t ticket = TicketOf(mine);
  uint32_t before, after;
  if (relation >= kOtherBlock) {
    after = __ops_debug_race_block_bits(t, ticket) >> kSyncWiderShift;
    if ((after & kSyncAcquire) == 0) return false;
    before = first_known ? __ops_debug_race_block_bits(t, TicketOf(old)) >> kSyncWiderShift : ~0u;
  } else if (t->named != 0 || !first_known) {
    before = after = __ops_debug_race_block_bits(t, ticket);
  } else {
    after = SyncBits(t, ticket, ThreadOf(mine) >> 5);
    before = SyncBits(t, ticket, ThreadOf(old) >> 5);
  }
  return (after & kSyncAcquire) != 0 && (before & kSyncRelease) != 0;
}

static __device__ __forceinline__ RaceRecord* FindRecord(RaceChannel* channel, uint64_t key,
                                                         bool* made) {
  const uint32_t start = static_cast<uint32_t>((key * 0x9e3779b97f4a7c15ull) >> 44);
#pragma unroll 1
  for (uint32_t i = 0; i < kRaceProbes; i++) {
    RaceRecord* const record = channel->records + ((start + i) & (kRaceRecords - 1));
    uint64_t held = Load(&record->key);
    if (held == 0) held = CompareAndSwap(&record->key, 0, key);
    *made = held == 0;
    if (held == 0 || held == key) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&record->count), 1ull);
      return record;
    }
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(&channel->overflow), 1ull);
  return nullptr;
}

// A fault of synchronisation at `site`; `other` is the site of those that it met there, or 0.
extern "C" __device__ __noinline__ void __ops_debug_race_report_sync(const RaceThread* t,
                                                                     uint32_t kind, uint32_t site,
                                                                     uint32_t other,
                                                                     uint32_t missing) {
  if (t->launch.channel == 0 || t->stamp == 0) return;
  RaceChannel* const channel = reinterpret_cast<RaceChannel*>(t->launch.channel);
  const uint64_t key =
      1ull << 63 | static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(other) << 24 | site;
  bool made;
  RaceRecord* const record = FindRecord(channel, key, &made);
  if (record != nullptr && made) {
    record->kind = kind;
    record->first_site = other;
    record->second_site = site;
    record->first_ticket = record->second_ticket = TicketOf(t->stamp);
    record->first_thread = record->second_thread = ThreadOf(t->stamp);
    record->missing = missing;
    record->launch_id = t->launch_id;
    __threadfence();
    *static_cast<volatile uint32_t*>(&record->state) = 2;
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(&channel->conflicts), 1ull);
}

// One conflict. `old` and `old_side` are what the cell said, `mine` and `my_side` this thread's.
extern "C" __device__ __noinline__ void __ops_debug_race_report(const RaceThread* t,
                                                                const Place* place, uint64_t old,
                                                                uint64_t old_side, uint64_t mine,
                                                                uint64_t my_side, uint32_t accesses,
                                                                uint32_t relation, uint32_t flags) {
  RaceChannel* const channel = reinterpret_cast<RaceChannel*>(t->launch.channel);
  const uint32_t old_site = static_cast<uint32_t>(old_side) >> kSiteShift;
  const uint32_t my_site = static_cast<uint32_t>(my_side) >> kSiteShift;
  if (place->shared) flags |= kRecordShared;
  if (__ops_debug_race_may_order(t, old, mine, relation, (flags & kRecordFirstThreadUnknown) == 0))
    flags |= kRecordUnproven;
  const uint64_t key =
      1ull << 63 | static_cast<uint64_t>(flags & 15) << 48 | static_cast<uint64_t>(accesses) << 52 |
      static_cast<uint64_t>(relation) << 56 | static_cast<uint64_t>(old_site) << 24 | my_site;
  bool made;
  RaceRecord* const record = FindRecord(channel, key, &made);
  if (record != nullptr && made) {
    const uint32_t bytes = BytesOf(old) & BytesOf(mine);
    record->kind = kRecordRace;
    record->relation = relation;
    record->flags = flags;
    record->first_access = accesses & 3;
    record->second_access = accesses >> 2;
    record->first_site = old_site;
    record->second_site = my_site;
    record->first_ticket = TicketOf(old);
    record->second_ticket = TicketOf(mine);
    record->first_thread = ThreadOf(old);
    record->second_thread = ThreadOf(mine);
    record->first_value = static_cast<uint32_t>(old_side >> 32);
    record->second_value = static_cast<uint32_t>(my_side >> 32);
    record->address = place->address;
    record->bytes = bytes;
    record->launch_id = t->launch_id;
    __threadfence();
    *static_cast<volatile uint32_t*>(&record->state) = 2;
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(&channel->conflicts), 1ull);
}

// The cells of the word at `address` (for shared memory: an offset in the window).
static __device__ __forceinline__ bool FindPlace(const RaceThread* t, uint64_t address, bool shared,
                                                 Place* place) {
  place->shared = shared;
  place->address = address;
  if (shared) {
    const uint32_t word = static_cast<uint32_t>(address) >> 2;
    if (t->cells == 0 || word >= t->launch.shared_words) return false;
    place->cell = reinterpret_cast<RaceCell*>(t->cells) + word;
    place->side =
        reinterpret_cast<RaceSide*>(t->cells + sizeof(RaceCell) * t->launch.shared_words) + word;
    return true;
  }
  const uint64_t entry = address >> kRaceDirectoryShift;
  if (t->launch.directory == 0 || entry >= kRaceDirectoryEntries) return false;
  const uint64_t* const table = reinterpret_cast<const uint64_t*>(
      reinterpret_cast<const uint64_t*>(t->launch.directory)[entry]);
  const uint64_t chunk = table[(address >> kRaceChunkShift) & (kRaceTableEntries - 1)];
  if (chunk == 0) return false;
  const uint32_t word = static_cast<uint32_t>(address >> 2) & (kRaceChunkWords - 1);
  place->cell = reinterpret_cast<RaceCell*>(chunk) + word;
  place->side = reinterpret_cast<RaceSide*>(chunk + sizeof(RaceCell) * kRaceChunkWords) + word;
  return true;
}

// Nothing in `word` can conflict with this thread now: it is of a block, a launch or an interval
// between barriers that is over. The common case; what is not so is looked at in full.
static __device__ __forceinline__ bool IsHistory(const RaceThread* t, uint64_t word, bool shared) {
  const uint64_t interval = t->interval;
  if (shared) return word < interval;
  const uint64_t block = interval >> kTicketShift << kTicketShift;
  return TicketOf(word) < t->launch.ordered_below || word - block < interval - block;
}

// What the readers' word becomes when `mine` (kReadOne) reads, too; `old` itself if it says enough.
// The first of several stays named: the next writer is often the one who read last.
static __device__ __forceinline__ uint64_t AddReader(const RaceThread* t, uint64_t old,
                                                     uint64_t mine, bool shared) {
  const uint64_t kind = old & kReadKindMask;
  uint32_t relation;
  if (OrderOf(t, old, mine, kReadOne, shared, &relation) == kOrdered && kind == kReadOne)
    return mine;
  const bool same_block = TicketOf(old) == TicketOf(mine);
  const bool same_launch =
      same_block || (!shared && TicketOf(old) - t->launch.first_ticket < t->blocks);
  if (!same_launch) return mine;
  if (same_block && kind != kReadBlocks &&
      (EpochsOf(old) >> t->narrow_bits) != (EpochsOf(mine) >> t->narrow_bits))
    return mine;
  // Of strong and weak readers the weak ones matter; of different bytes the word can hold one set.
  if ((old ^ mine) & kReadStrong) return (old & kReadStrong) != 0 ? mine : old;
  if (BytesOf(old) != BytesOf(mine)) return (BytesOf(mine) & ~BytesOf(old)) == 0 ? old : mine;
  if (kind == kReadBlocks) return old;
  if (!same_block) return old | kReadBlocks;
  if (kind == kReadWarps) return old;
  if (ThreadOf(old) >> 5 != ThreadOf(mine) >> 5) return (old & ~kReadKindMask) | kReadWarps;
  // The same warp.
  if (EpochsOf(old) != EpochsOf(mine)) return kind == kReadOne ? mine | kReadLanes : mine;
  return old | kReadLanes;
}

static __device__ __forceinline__ uint64_t Bytes(uint64_t address, uint64_t end, uint64_t word) {
  const uint32_t from = address > word ? static_cast<uint32_t>(address - word) : 0;
  const uint32_t to = end < word + 4 ? static_cast<uint32_t>(end - word) : 4;
  return ((1u << to) - (1u << from)) << kBytesShift;
}

// Both strong, and wide enough for each other.
static __device__ __forceinline__ bool MorallyStrong(uint64_t write_flags, bool strong, bool wide,
                                                     uint32_t relation, bool* narrow_scope) {
  const uint64_t strength = write_flags & kWriteStrengthMask;
  if (strength == kWriteWeak || strength == kWriteUnknown || !strong) return false;
  const bool both_wide = strength == kWriteStrong && wide;
  *narrow_scope = relation >= kOtherBlock && !both_wide;
  return !*narrow_scope;
}

// The write that a read meets, if it is no history.
extern "C" __device__ __noinline__ void __ops_debug_race_read_met(const RaceThread* t,
                                                                  const Place* place,
                                                                  uint64_t write, uint64_t mine,
                                                                  uint64_t my_side,
                                                                  uint32_t strength) {
  if ((BytesOf(write) & BytesOf(mine)) == 0) return;
  uint32_t relation = 0;
  const Order order = OrderOf(t, write, mine, kReadOne, place->shared, &relation);
  if (order == kOrdered) return;
  bool narrow_scope = false;
  if (MorallyStrong(write, strength != 0, strength == kWriteStrong, relation, &narrow_scope))
    return;
  const uint64_t side = Load(&place->side->write);
  if ((side & 1023) != ThreadOf(write)) return;
  const uint32_t first = (write & kWriteAtomic) != 0 ? kRaceAtomic : kRaceWrite;
  const bool known = first == kRaceWrite && (write & kWriteStrengthMask) != kWriteUnknown;
  __ops_debug_race_report(t, place, write, side, mine, my_side, first | kRaceRead << 2, relation,
                          (narrow_scope ? kRecordScope : 0) |
                              (order == kPerhaps ? kRecordUnproven : 0) |
                              (known ? kRecordFirstValue : 0));
}

// Adds a reader where there are some already.
extern "C" __device__ __noinline__ void __ops_debug_race_add_reader(const RaceThread* t,
                                                                    const Place* place,
                                                                    uint64_t mine,
                                                                    uint64_t my_side) {
  uint64_t old = Load(&place->cell->read);
  while (true) {
    const uint64_t next = AddReader(t, old, mine, place->shared);
    if (next == old) return;
    const uint64_t seen = CompareAndSwap(&place->cell->read, old, next);
    if (seen == old) {
      volatile uint32_t* const side = reinterpret_cast<volatile uint32_t*>(&place->side->read);
      if (((next ^ mine) >> kThreadShift) == 0) {
        *static_cast<volatile uint64_t*>(&place->side->read) = my_side;
      } else {
        side[1] = static_cast<uint32_t>(my_side);
      }
      return;
    }
    old = seen;
  }
}

static __device__ __forceinline__ void ReadWord(const RaceThread* t, const Place& place,
                                                uint64_t bytes, uint32_t strength, uint32_t site) {
  const uint64_t mine = t->stamp | bytes | (strength != 0 ? kReadStrong : 0);
  const uint64_t read = Load(&place.cell->read);
  const bool known = read == mine;
  if (!known) {
    const uint64_t my_side = static_cast<uint64_t>(site) << kSiteShift | ThreadOf(mine);
    if (IsHistory(t, read, place.shared) && CompareAndSwap(&place.cell->read, read, mine) == read) {
      *static_cast<volatile uint64_t*>(&place.side->read) = my_side;
    } else {
      __ops_debug_race_add_reader(t, &place, mine, my_side);
    }
  }
  // Behind the branch on what the exchange said.
  const uint64_t write = Load(&place.cell->write);
  if (IsHistory(t, write, place.shared) || (write ^ mine) >> kThreadShift == 0) return;
  __ops_debug_race_read_met(t, &place, write, mine,
                            static_cast<uint64_t>(site) << kSiteShift | ThreadOf(mine), strength);
}

static __device__ __forceinline__ bool IsStrong(uint64_t strength) {
  return strength == kWriteStrongBlock || strength == kWriteStrong;
}

// The write and the readers that a write meets.
extern "C" __device__ __noinline__ void __ops_debug_race_write_met(const RaceThread* t,
                                                                   const Place* place,
                                                                   uint64_t write, uint64_t side,
                                                                   uint64_t read, uint64_t mine,
                                                                   uint64_t my_side) {
  const uint64_t strength = mine & kWriteStrengthMask;
  const bool atomic = (mine & kWriteAtomic) != 0, strong = IsStrong(strength);
  const bool known = !atomic && strength != kWriteUnknown;
  const uint32_t second = atomic ? kRaceAtomic : kRaceWrite;
  uint32_t relation = 0;
  if ((BytesOf(write) & BytesOf(mine)) != 0 && (side & 1023) == ThreadOf(write)) {
    const Order order = OrderOf(t, write, mine, kReadOne, place->shared, &relation);
    bool narrow_scope = false;
    if (order != kOrdered &&
        !MorallyStrong(write, strong, strength == kWriteStrong, relation, &narrow_scope)) {
      const uint32_t first = (write & kWriteAtomic) != 0 ? kRaceAtomic : kRaceWrite;
      // 0x01 for byte 0 becomes 0xff for it: a multiplication spreads the four bits to four bytes.
      const uint32_t both = BytesOf(write) & BytesOf(mine);
      const uint32_t mask = ((both * 0x00204081u) & 0x01010101u) * 0xff;
      const bool first_known = first == kRaceWrite && (write & kWriteStrengthMask) != kWriteUnknown;
      const bool same =
          first_known && known && (static_cast<uint32_t>((side ^ my_side) >> 32) & mask) == 0;
      __ops_debug_race_report(
          t, place, write, side, mine, my_side, first | second << 2, relation,
          (narrow_scope ? kRecordScope : 0) | (order == kPerhaps ? kRecordUnproven : 0) |
              (same ? kRecordSameValue : 0) | (first_known ? kRecordFirstValue : 0) |
              (known ? kRecordSecondValue : 0));
    }
  }
  if ((BytesOf(read) & BytesOf(mine)) == 0) return;
  const uint64_t kind = read & kReadKindMask;
  const Order order = OrderOf(t, read, mine, kind, place->shared, &relation);
  if (order == kOrdered || (strong && (read & kReadStrong) != 0)) return;
  // The writer may be the reader that is named: then it is the second one that it conflicts with.
  bool unknown = false;
  uint64_t read_side = Load(&place->side->read);
  if ((kind == kReadLanes && ThreadOf(read) == ThreadOf(mine)) ||
      (kind == kReadWarps && ThreadOf(read) >> 5 == ThreadOf(mine) >> 5) ||
      (kind == kReadBlocks && TicketOf(read) == TicketOf(mine))) {
    read_side >>= 32;
    unknown = kind == kReadBlocks || read_side == 0;
    read = (read & ~(1023ull << kThreadShift)) | (read_side & 1023) << kThreadShift;
  }
  __ops_debug_race_report(
      t, place, read, read_side & 0xffffffff, mine, my_side, kRaceRead | second << 2, relation,
      (order == kPerhaps ? kRecordUnproven : 0) | (unknown ? kRecordFirstThreadUnknown : 0) |
          (known ? kRecordSecondValue : 0));
}

static __device__ __forceinline__ void WriteWord(const RaceThread* t, const Place& place,
                                                 uint64_t bytes, uint32_t flags, uint32_t site,
                                                 uint32_t value) {
  const uint64_t mine = t->stamp | bytes | flags;
  const uint64_t my_side = static_cast<uint64_t>(value) << 32 |
                           static_cast<uint64_t>(site) << kSiteShift | ThreadOf(mine);
  uint64_t side = 0, write = 0;
  // This thread's own weak write is what others can conflict with, not its strong one behind it.
  bool keep = false;
  if (IsStrong(mine & kWriteStrengthMask)) {
    write = Load(&place.cell->write);
    keep = (write ^ mine) >> kThreadShift == 0 && !IsStrong(write & kWriteStrengthMask);
  }
  if (!keep) {
    side = Exchange(&place.side->write, my_side);
    write = Exchange(&place.cell->write, mine);
  }
  const uint64_t read = LoadBehind(&place.cell->read, write);
  const bool wrote_last = (write ^ mine) >> kThreadShift == 0;
  const bool read_last = (read ^ mine) >> kThreadShift == 0 && (read & kReadKindMask) == kReadOne;
  if ((wrote_last || IsHistory(t, write, place.shared)) &&
      (read_last || IsHistory(t, read, place.shared))) {
    return;
  }
  __ops_debug_race_write_met(t, &place, write, side, read, mine, my_side);
}

// Ends checking of this thread: a counter ran out.
extern "C" __device__ __noinline__ void __ops_debug_race_stop(RaceThread* t) {
  __ops_debug_race_report_sync(t, kRecordIncomplete, 0, 0, 0);
  t->stamp = 0;
}

// The next narrower synchronisation begins.
static __device__ __forceinline__ void StepNarrow(RaceThread* t) {
  if ((EpochsOf(t->stamp) & ((1u << t->narrow_bits) - 1)) == (1u << t->narrow_bits) - 1) {
    __ops_debug_race_stop(t);
    return;
  }
  t->stamp += 1ull << kEpochShift;
}

static __device__ __forceinline__ uint32_t ThreadsOfBlock() {
  return blockDim.x * blockDim.y * blockDim.z;
}

static __device__ __forceinline__ uint32_t LanesOfWarp(uint32_t warp) {
  const uint32_t left = ThreadsOfBlock() - warp * 32;
  return left >= 32 ? ~0u : (1u << left) - 1;
}

static __device__ __forceinline__ uint64_t* BlockSync(const RaceThread* t) {
  return reinterpret_cast<RaceChannel*>(t->launch.channel)->block_sync +
         (TicketOf(t->stamp) % kSyncRingBlocks) * kBlockSyncWords;
}

// Adds to a word that counts for one ticket; later ones took it over.
static __device__ __forceinline__ void AddForTicket(uint64_t* word, uint32_t ticket,
                                                    uint32_t more) {
  uint64_t held = Load(word);
  while (held >> kSyncTicketShift <= ticket) {
    const uint64_t old = held >> kSyncTicketShift == ticket
                             ? held
                             : static_cast<uint64_t>(ticket) << kSyncTicketShift;
    const uint64_t seen = CompareAndSwap(word, held, old + more);
    if (seen == held) break;
    held = seen;
  }
}

static __device__ __forceinline__ uint32_t ExitedLanes(const uint64_t* words, uint32_t ticket,
                                                       uint32_t warp) {
  const uint64_t word = Load(words + kExitedWord + warp);
  return word >> kSyncTicketShift == ticket ? static_cast<uint32_t>(word) : 0;
}

// The word of a synchronisation that this thread is about to begin, without its site.
static __device__ __forceinline__ uint64_t SyncNumber(const RaceThread* t, uint32_t number) {
  return static_cast<uint64_t>(TicketOf(t->stamp)) << kTicketShift |
         static_cast<uint64_t>(number & kSyncNumberMask) << kSyncNumberShift;
}
static __device__ __forceinline__ uint32_t NextBarrier(const RaceThread* t) {
  return (EpochsOf(t->stamp) >> t->narrow_bits) + 1;
}

// Resolves a generic address; false: nobody else can reach it.
static __device__ __forceinline__ bool Resolve(uint64_t* address, uint32_t what, bool* shared) {
  *shared = (what & kCallSpaceMask) == kCallShared;
  if ((what & kCallSpaceMask) != kCallGeneric) return true;
  if (__isLocal(reinterpret_cast<void*>(*address))) return false;
  *shared = __isShared(reinterpret_cast<void*>(*address));
  if (*shared) asm("cvta.to.shared.u64 %0, %1;" : "=l"(*address) : "l"(*address));
  return true;
}

extern "C" {

// The launch, launch_id and narrow_bits are in place.
__device__ __noinline__ void __ops_debug_race_start(RaceThread* t) {
  t->stamp = 0;
  t->cells = t->named = 0;
  t->warp_mask = ~0u;
  t->done = 0;
  t->blocks = gridDim.x * gridDim.y * gridDim.z;
  if (t->launch.channel == 0) return;
  const uint32_t ticket =
      t->launch.first_ticket + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  t->interval = static_cast<uint64_t>(ticket) << kTicketShift;
  t->stamp = t->interval | static_cast<uint64_t>(thread) << kThreadShift;
  const uint32_t slot = ticket & t->launch.slot_mask;
  if (t->launch.shared_cells != 0)
    t->cells = t->launch.shared_cells + slot * t->launch.shared_slot_bytes;
  if (t->launch.named_barriers != 0)
    t->named = t->launch.named_barriers + slot * (kNamedWords * sizeof(uint64_t));
}

// A read of `what` bytes (kCall...).
__device__ __noinline__ void __ops_debug_race_read(RaceThread* t, uint64_t address, uint32_t what,
                                                   uint32_t site) {
  bool shared;
  if (t->stamp == 0 || !Resolve(&address, what, &shared)) return;
  site += t->launch.site_base;
  const uint64_t end = address + (what >> kCallBytesShift);
#pragma unroll 1
  for (uint64_t word = address & ~3ull; word < end; word += 4) {
    Place place;
    if (!FindPlace(t, word, shared, &place)) continue;
    ReadWord(t, place, Bytes(address, end, word), what & kCallStrengthMask, site);
  }
}

// A write of up to 8 bytes, or of more if their value is not known (kWriteUnknown, atomics).
__device__ __noinline__ void __ops_debug_race_write(RaceThread* t, uint64_t address, uint32_t what,
                                                    uint32_t site, uint64_t value) {
  bool shared;
  if (t->stamp == 0 || !Resolve(&address, what, &shared)) return;
  site += t->launch.site_base;
  const uint64_t end = address + (what >> kCallBytesShift);
  if (address & 3) value <<= (address & 3) * 8;
#pragma unroll 1
  for (uint64_t word = address & ~3ull; word < end; word += 4) {
    Place place;
    if (FindPlace(t, word, shared, &place)) {
      WriteWord(t, place, Bytes(address, end, word), what & (kCallStrengthMask | kCallAtomic), site,
                static_cast<uint32_t>(value));
    }
    value >>= 32;
  }
}

// Before a barrier of the whole block. Threads that have returned are missing at every later
// barrier; one that returns while others wait sees that they do (__ops_debug_race_exit). That lanes
// of a warp come one after the other says nothing: all that counts is where they meet.
__device__ __noinline__ void __ops_debug_race_at_barrier(RaceThread* t, uint32_t site) {
  if (t->stamp == 0) return;
  site += t->launch.site_base;
  const uint32_t ticket = TicketOf(t->stamp);
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  // One lane speaks for those that are here with it.
  if ((__activemask() & ((1u << lane) - 1)) != 0) return;
  uint64_t* const words = BlockSync(t);
  const uint64_t mine = SyncNumber(t, NextBarrier(t)) | (site & kLastSite);
  uint64_t* const word = words + kBlockBarrierWord;
  uint64_t held = Load(word);
  while (held >> kSyncNumberShift < mine >> kSyncNumberShift) {
    const uint64_t seen = CompareAndSwap(word, held, mine);
    held = seen == held ? mine : seen;
  }
  __threadfence();
  if (held != mine && held >> kSyncNumberShift == mine >> kSyncNumberShift) {
    __ops_debug_race_report_sync(t, kRecordDivergentBarrier, site,
                                 static_cast<uint32_t>(held) & kLastSite, 0);
  }
  const uint64_t count = Load(words + kExitedCountWord);
  const uint32_t exited = count >> kSyncTicketShift == ticket ? static_cast<uint32_t>(count) : 0;
  if (exited != 0) __ops_debug_race_report_sync(t, kRecordExitedThreads, site, 0, exited);
}

// Before an instruction that the lanes of `mask` execute together. `orders`: bar.warp.sync.
__device__ __noinline__ void __ops_debug_race_at_warp_sync(RaceThread* t, uint32_t site,
                                                           uint32_t mask, uint32_t orders) {
  if (t->stamp == 0) return;
  site += t->launch.site_base;
  const uint32_t ticket = TicketOf(t->stamp), warp = ThreadOf(t->stamp) >> 5;
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  uint64_t* const words = BlockSync(t);
  if (orders != 0 && (mask & LanesOfWarp(warp)) == LanesOfWarp(warp)) {
    *static_cast<volatile uint64_t*>(words + kWarpSyncWord + warp) =
        SyncNumber(t, EpochsOf(t->stamp)) | (site & kLastSite);
    __threadfence();
  }
  const uint32_t exited = ExitedLanes(words, ticket, warp) & mask;
  if (exited != 0) __ops_debug_race_report_sync(t, kRecordWarpMask, site, 0, __popc(exited));
  if ((mask >> lane & 1) == 0) __ops_debug_race_report_sync(t, kRecordWarpMask, site, 0, 0);
}

// Before the thread returns. One lane speaks for those that return with it at the same place.
__device__ __noinline__ void __ops_debug_race_exit(RaceThread* t) {
  if (t->stamp == 0) return;
  const uint32_t ticket = TicketOf(t->stamp), thread = ThreadOf(t->stamp), warp = thread >> 5;
  uint64_t* const words = BlockSync(t);
  const uint32_t here =
      __match_any_sync(__activemask(), static_cast<uint32_t>(t->stamp >> kEpochShift));
  if ((here & ((1u << (thread & 31)) - 1)) != 0) return;
  AddForTicket(words + kExitedWord + warp, ticket, here);
  AddForTicket(words + kExitedCountWord, ticket, __popc(here));
  __threadfence();
  const uint64_t barrier = Load(words + kBlockBarrierWord);
  if (barrier >> kSyncNumberShift == SyncNumber(t, NextBarrier(t)) >> kSyncNumberShift)
    __ops_debug_race_report_sync(t, kRecordExitedThreads,
                                 static_cast<uint32_t>(barrier) & kLastSite, 0, __popc(here));
  const uint64_t sync = Load(words + kWarpSyncWord + warp);
  if (sync >> kSyncNumberShift == SyncNumber(t, EpochsOf(t->stamp)) >> kSyncNumberShift)
    __ops_debug_race_report_sync(t, kRecordWarpMask, static_cast<uint32_t>(sync) & kLastSite, 0,
                                 __popc(here));
}

// Behind a barrier of the whole block.
__device__ __noinline__ void __ops_debug_race_barrier(RaceThread* t) {
  if (t->stamp == 0) return;
  const uint32_t wide = (EpochsOf(t->stamp) >> t->narrow_bits) + 1;
  if (wide >> (kEpochBits - t->narrow_bits) != 0) {
    __ops_debug_race_stop(t);
    return;
  }
  t->stamp = (t->stamp & ~(((1ull << kEpochBits) - 1) << kEpochShift)) |
             static_cast<uint64_t>(wide << t->narrow_bits) << kEpochShift;
  t->interval = StampOf(t->stamp);
  t->warp_mask = ~0u;
}

// Behind bar.warp.sync.
__device__ __noinline__ void __ops_debug_race_warp_sync(RaceThread* t, uint32_t mask) {
  if (t->stamp == 0) return;
  const uint32_t lanes = LanesOfWarp(ThreadOf(t->stamp) >> 5);
  if ((mask & lanes) != lanes) {
    t->warp_mask &= mask;
    if ((t->done & kSyncLoneLanes) == 0) __ops_debug_race_set_bits(t, kSyncLoneLanes);
  }
  StepNarrow(t);
}

// Before a barrier that not the whole block takes part in, and behind it, if it waits (kNamed...).
// If its count is that of the whole block and all wait, it is one of the block.
__device__ __noinline__ void __ops_debug_race_named(RaceThread* t, uint32_t barrier, uint32_t count,
                                                    uint32_t when) {
  if (t->stamp == 0) return;
  const bool before = (when & kNamedBefore) != 0;
  if (count >= ((ThreadsOfBlock() + 31) & ~31u) && (when & kNamedSomeArrive) == 0) {
    if (!before) __ops_debug_race_barrier(t);
    return;
  }
  if (t->named == 0) {
    __ops_debug_race_stop(t);
    return;
  }
  const uint32_t warp = ThreadOf(t->stamp) >> 5;
  const uint32_t active = __activemask();
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  const uint32_t rank = __popc(active & ((1u << lane) - 1)), lanes = __popc(active);
  uint64_t* const mine = reinterpret_cast<uint64_t*>(t->named) + warp * 32;
  uint64_t* const its =
      reinterpret_cast<uint64_t*>(t->named) + 32 * 32 + (barrier % kNamedBarriers) * 32;
#pragma unroll 1
  for (uint32_t other = rank; other < 32; other += lanes) {
    const uint64_t ordered = !before         ? Load(its + other)
                             : other == warp ? StampOf(t->stamp) + (1ull << kEpochShift)
                                             : Load(mine + other);
    atomicMax(reinterpret_cast<unsigned long long*>(before ? its + other : mine + other), ordered);
  }
  if (before) StepNarrow(t);
  __threadfence_block();
}

// A fence or a strong access (kCall...Order).
__device__ __noinline__ void __ops_debug_race_order(RaceThread* t, uint32_t what) {
  if (t->stamp == 0) return;
  const uint32_t ticket = TicketOf(t->stamp);
  const uint32_t levels = (what & kOrderWide) != 0 ? 2 : 1;
  uint32_t bits = 0;
  uint32_t block = 0;
  bool asked = false;
#pragma unroll 1
  for (uint32_t level = 0; level < levels; level++) {
    const uint32_t shift = level * kSyncWiderShift;
    uint32_t add = 0;
    if (what & kOrderFence) add |= kSyncFence;
    if (what & kOrderStrongRead) add |= kSyncStrongRead;
    if (what & kOrderAcquire) add |= kSyncAcquire;
    if (what & kOrderRelease) add |= kSyncRelease;
    const uint32_t done = t->done >> shift;
    const bool may_acquire = (what & kOrderFence) != 0 && (done & kSyncAcquire) == 0;
    const bool may_release = (what & kOrderStrongWrite) != 0 && (done & kSyncRelease) == 0;
    // Another thread of the block may have done the other half, with a barrier between.
    if ((may_acquire || may_release) && !asked) {
      block = __ops_debug_race_block_bits(t, ticket) | t->done;
      asked = true;
    }
    if (may_acquire && (block >> shift & kSyncStrongRead) != 0) add |= kSyncAcquire;
    if (may_release && (block >> shift & kSyncFence) != 0) add |= kSyncRelease;
    bits |= add << shift;
  }
  if ((bits & ~t->done) != 0) __ops_debug_race_set_bits(t, bits);
}

}  // extern "C"
