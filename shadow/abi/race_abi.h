// The contract between kernels instrumented for races and barriers (shadow/passes/add_race_checks,
// shadow/device/race.cu) and the host. Plain data, compiled by the host compiler and by nvcc.
//
// Every 4 bytes of shared or global memory have a cell of constant size that says who wrote them
// last and who read them last, when, and which of the four bytes. It is in the spirit of
// FastTrack's epochs (Flanagan & Freund, PLDI 2009), brought to the GPU's hierarchy as CURD (Peng,
// Grover & Devietti, PLDI 2018), BARRACUDA (Eizenberg et al., PLDI 2017) and iGUARD (Kamath & Basu,
// SOSP 2021) do: order comes from counting barriers, so no vector clock is needed for it.
//
// "When" is a stamp: the block's ticket, the number of barriers of the whole block that the thread
// has passed, and the number of narrower synchronisations (of the warp, of named barriers) since.
// Tickets number the blocks of all launches of a context, from 1, in the order of their launches:
// launch n has tickets [first_ticket, first_ticket + blocks). So a cell needs no clearing between
// blocks or launches: whoever finds an older ticket knows that it is history, or looks up whether a
// stream ordered it. When tickets run out (kTicketBits), the host clears all cells and begins anew.
#pragma once

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): also compiled as device code

namespace ops_debug::shadow {

// ---- Stamps and cells
// A word of a cell, from the top: ticket 24, epochs 23 (barriers above, narrower ones below: how
// many bits each is decided per module, RaceLaunch::narrow_bits), thread in its block 10, bytes 4,
// flags 3. 0: nobody. The upper 47 bits are the stamp, and stamps of one warp only grow.
constexpr uint32_t kTicketBits = 24;
constexpr uint32_t kEpochBits = 23;
constexpr uint32_t kTicketShift = 40;
constexpr uint32_t kEpochShift = 17;
constexpr uint32_t kThreadShift = 7;
constexpr uint32_t kBytesShift = 3;
constexpr uint32_t kLastTicket = (1u << kTicketBits) - 1;
// Flags of the word of the last write: how strong it was (PTX ISA 8.2.1, strong operations; 8.5,
// scope).
constexpr uint64_t kWriteWeak = 0;
constexpr uint64_t kWriteStrongBlock = 1;  // atomic or strong store of scope .cta
constexpr uint64_t kWriteStrong = 2;       // of a wider scope
constexpr uint64_t kWriteUnknown = 3;      // weak, and the value in RaceSide means nothing
constexpr uint64_t kWriteStrengthMask = 3;
constexpr uint64_t kWriteAtomic = 4;  // read-modify-write
// Flags of the word of the last reads: who they were. The thread and ticket in the word are those
// of the first of them.
constexpr uint64_t kReadOne = 0;     // one thread
constexpr uint64_t kReadLanes = 1;   // several lanes of its warp
constexpr uint64_t kReadWarps = 2;   // several warps of its block
constexpr uint64_t kReadBlocks = 3;  // several blocks of its launch
constexpr uint64_t kReadKindMask = 3;
constexpr uint64_t kReadStrong = 4;

struct RaceCell {
  uint64_t write, read;
};
// What a report needs beside the words. In the lower half the site (kSiteShift) and the thread, by
// which one sees that the two belong together; in the upper half of a write the value, of reads the
// site and thread of the second reader.
struct RaceSide {
  uint64_t write, read;
};
constexpr uint32_t kSiteShift = 10;
constexpr uint32_t kLastSite = (1u << 22) - 1;  // sites are numbered from 1 over all modules

// Memory of one block's shared memory: RaceCell[words], then RaceSide[words], words = shared bytes
// / 4. Blocks share slots: ticket modulo the number of slots. Two that are resident together may
// overlook conflicts, but never see some that are not there, as each ignores the other's tickets.
// Twice the number of resident blocks makes that rare.
constexpr uint32_t kBytesPerWord = sizeof(RaceCell) + sizeof(RaceSide);

// Cells of global memory: a directory of kRaceDirectoryEntries pointers (one per 512 MiB) leads to
// tables of kRaceTableEntries pointers (one per 64 KiB of memory), each to a chunk:
// RaceCell[16384], then RaceSide[16384]. Null: the memory has no cells and is not checked. All
// directory entries point to some table (of nulls, if nothing is there).
constexpr uint32_t kRaceDirectoryShift = 29;
constexpr uint32_t kRaceDirectoryEntries = 1u << 18;  // 47 bits of address
constexpr uint32_t kRaceChunkShift = 16;
constexpr uint32_t kRaceTableEntries = 1u << (kRaceDirectoryShift - kRaceChunkShift);
constexpr uint32_t kRaceChunkWords = 1u << (kRaceChunkShift - 2);
constexpr uint64_t kRaceChunkBytes = uint64_t{kRaceChunkWords} * kBytesPerWord;

// ---- What warps did to order memory without barriers
// A ring of kSyncRingBlocks * kSyncRingWarps words, kSyncRingWarps for each ticket modulo
// kSyncRingBlocks: the ticket from kSyncTicketShift on, what the warp has done below. Zero at
// start; a word with a smaller ticket means "nothing", one with a larger ticket "no longer known".
constexpr uint32_t kSyncRingBlocks = 1u << 14;
constexpr uint32_t kSyncRingWarps = 32;
constexpr uint32_t kSyncTicketShift = 32;
constexpr uint32_t kSyncFence = 1;       // a fence or release of any scope
constexpr uint32_t kSyncRelease = 2;     // a strong write behind it
constexpr uint32_t kSyncStrongRead = 4;  // a strong read
constexpr uint32_t kSyncAcquire = 8;     // a fence behind it, or an acquire
constexpr uint32_t kSyncWiderShift = 4;  // << this: the same, of scope .cluster, .gpu or .sys
constexpr uint32_t kSyncLoneLanes =
    256;  // a warp synchronisation that not all of its lanes took part in

// ---- Who waits and who left
// A ring of kBlockSyncWords words, one set for each ticket modulo kSyncRingBlocks, zero at start.
// By warp, from kExitedWord on: the ticket (kSyncTicketShift) and the lanes that have returned. By
// warp, from kWarpSyncWord on, and one for the block, kBlockBarrierWord: the warp synchronisation
// of all lanes, or the block's barrier, that was begun last: ticket 24, number 18, site 22.
constexpr uint32_t kExitedWord = 0;
constexpr uint32_t kWarpSyncWord = 32;
constexpr uint32_t kBlockBarrierWord = 64;
constexpr uint32_t kExitedCountWord = 65;  // the ticket and how many threads have returned
constexpr uint32_t kBlockSyncWords = 66;
constexpr uint32_t kSyncNumberShift = 22;
constexpr uint32_t kSyncNumberMask = (1u << 18) - 1;

// ---- Named barriers
// If the module has barriers that only some warps take part in (RaceLaunch::named_barriers != 0):
// per slot uint64_t[32][32], the stamp up to which warp [a] is ordered before warp [b] ([b][a]),
// and uint64_t[16][32], the same for barrier ids. Zero at start.
constexpr uint32_t kNamedBarriers = 16;
constexpr uint32_t kNamedWords = 32 * 32 + kNamedBarriers * 32;

// ---- Records
enum RaceRecordKind : uint32_t {
  kRecordRace = 0,
  kRecordDivergentBarrier = 1,  // threads met at two places of the text
  kRecordExitedThreads = 2,
  kRecordIncomplete = 3,  // counters ran out: checking of a block ended
  kRecordWarpMask = 4,    // a mask lacks the lane itself, or names lanes that returned
};
enum RaceRelation : uint32_t {
  kSameWarp = 0,
  kSameBlock = 1,
  kOtherBlock = 2,   // of the same launch
  kOtherLaunch = 3,  // of another one, with no order between the streams
};
// Kinds of accesses, in records and in calls.
constexpr uint32_t kRaceRead = 0;
constexpr uint32_t kRaceWrite = 1;
constexpr uint32_t kRaceAtomic = 2;
// RaceRecord::flags
constexpr uint32_t kRecordShared = 1;        // address is an offset in the block's shared window
constexpr uint32_t kRecordUnproven = 2;      // fences, flags or atomics may order the two
constexpr uint32_t kRecordSameValue = 4;     // both wrote the same
constexpr uint32_t kRecordScope = 8;         // both strong, but a scope is too narrow
constexpr uint32_t kRecordFirstValue = 16;   // RaceRecord::first_value is known
constexpr uint32_t kRecordSecondValue = 32;  // RaceRecord::second_value is known
constexpr uint32_t kRecordFirstThreadUnknown =
    64;  // `first` was one of several; block is right, thread not

// One kind of conflict between two sites: the first that was seen, and how many. Found by open
// addressing with `key`; written once by whoever got the key, complete when `state` is 2.
struct RaceRecord {
  uint64_t key;  // 0: free
  uint64_t count;
  uint32_t state;
  uint32_t kind;  // RaceRecordKind
  uint32_t relation;
  uint32_t flags;
  uint32_t first_access, second_access;  // kRaceRead...
  uint32_t first_site, second_site;      // RaceLaunch::site_base + index in sites + 1; 0: not known
  uint32_t first_ticket, second_ticket;
  uint32_t first_thread, second_thread;  // linear in the block
  uint32_t first_value, second_value;    // of the 4 bytes at `address`, shifted to their places
  uint64_t address;                      // multiple of 4
  uint32_t bytes;                        // set of the bytes that both touch, bit 0 = at `address`
  uint32_t missing;                      // faults of synchronisation: how many threads are missing
  uint64_t launch_id;                    // of the second access
};
constexpr uint32_t kRaceRecords = 1u << 12;
constexpr uint32_t kRaceProbes = 32;

// Per context, in device memory, made once and zeroed.
struct RaceChannel {
  RaceRecord records[kRaceRecords];
  uint64_t overflow;   // conflicts that found no record
  uint64_t conflicts;  // all: the host need not look at the records if it stands still
  uint64_t sync_ring[kSyncRingBlocks * kSyncRingWarps];
  uint64_t block_sync[kSyncRingBlocks * kBlockSyncWords];
};

// ---- Launch parameter
struct TicketRange {
  uint32_t first, last;  // inclusive
};
// At KernelPlan::races.launch_offset of the twin's launch parameter (device_abi.h). All zero: this
// launch is not checked for races.
struct RaceLaunch {
  uint64_t channel;            // device address of RaceChannel
  uint64_t shared_cells;       // slots; 0: shared memory is not checked
  uint64_t shared_slot_bytes;  // shared_words * kBytesPerWord
  uint64_t directory;          // of global cells; 0: global memory is not checked
  uint64_t named_barriers;     // uint64_t[slots][kNamedWords]; needed if RacePlan::named_barriers
  uint64_t unordered;          // device address of TicketRange[unordered_count]
  uint32_t slot_mask;          // number of slots (a power of two) - 1
  uint32_t shared_words;  // (static + dynamic shared bytes + 1024, which the system reserves) / 4,
                          // rounded up
  uint32_t reserved;
  uint32_t first_ticket;
  uint32_t
      ordered_below;  // tickets below happened before this launch; with one stream: first_ticket
  uint32_t
      unordered_count;  // tickets from ordered_below to first_ticket - 1 did, too, but for these
  uint32_t site_base;
  uint32_t tracked;  // bit i: accesses through RacePlan::slots[i] are checked
};

// ---- Calls
// `what` of __ops_debug_race_read and _write: strength (kWriteWeak, ...), kCallAtomic, the space,
// bytes from kCallBytesShift on.
constexpr uint32_t kCallStrengthMask = 3;
constexpr uint32_t kCallAtomic = 4;  // = kWriteAtomic
constexpr uint32_t kCallGeneric = 0;
constexpr uint32_t kCallGlobal = 8;
constexpr uint32_t kCallShared = 16;
constexpr uint32_t kCallSpaceMask = 24;
constexpr uint32_t kCallBytesShift = 8;
// `what` of __ops_debug_race_order.
constexpr uint32_t kOrderFence = 1;
constexpr uint32_t kOrderStrongWrite = 2;
constexpr uint32_t kOrderStrongRead = 4;
constexpr uint32_t kOrderAcquire = 8;  // the access itself acquires or releases
constexpr uint32_t kOrderRelease = 16;
constexpr uint32_t kOrderWide = 32;  // a scope wider than the block
// `when` of __ops_debug_race_named.
constexpr uint32_t kNamedBehind = 0, kNamedBefore = 1;
// Some warps of the module arrive without waiting, so a count of the whole block's threads does not
// mean that all of them wait.
constexpr uint32_t kNamedSomeArrive = 2;

// What a thread carries along in its local memory; made by the twin's first instructions.
struct RaceThread {
  RaceLaunch launch;
  uint64_t stamp;  // with thread; 0: this thread checks nothing (any more)
  uint64_t launch_id;
  uint64_t interval;   // the least stamp since the last barrier of the block
  uint64_t cells;      // of the block's slot
  uint64_t named;      // of the block's slot
  uint32_t warp_mask;  // lanes that took part in every warp synchronisation since the last barrier
  uint32_t narrow_bits;  // of the epochs
  uint32_t done;         // kSync... that are in the ring
  uint32_t blocks;       // in the grid
};

// ---- Operations that are no kernels
// Parameter of kRaceRangeKernel (race_range.cu), for any grid of blocks of one dimension. Of
// `launch` channel, directory, first_ticket (the operation's only one), ordered_below and unordered
// count. Its accesses have no site; records name the operation by its ticket.
constexpr char kRaceRangeKernel[] = "ops_debug_race_range";
struct RaceRange {
  RaceLaunch launch;
  uint64_t launch_id;   // the operation's number
  uint64_t begin, end;  // device addresses
  uint64_t is_write;
};

static_assert(sizeof(RaceRange) == 112);
static_assert(sizeof(RaceCell) == 16 && sizeof(RaceSide) == 16 && sizeof(RaceRecord) == 96 &&
              sizeof(RaceLaunch) == 80 && sizeof(RaceThread) == 136 && sizeof(TicketRange) == 8);
static_assert(kCallStrengthMask == kWriteStrengthMask && kCallAtomic == kWriteAtomic);
static_assert(kTicketShift + kTicketBits == 64 && kEpochShift + kEpochBits == kTicketShift &&
              kThreadShift + 10 == kEpochShift && kBytesShift + 4 == kThreadShift);

}  // namespace ops_debug::shadow
