// Scoped register names: see register_table.h for the structure.
#include "ptx/register_table.h"

#include <cstring>

#include "ptx/ir.h"

namespace ops_debug::ptx {
namespace {

uint64_t Hash(std::string_view name) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ name.size();
  const char* data = name.data();
  size_t left = name.size();
  while (left >= 8) {
    uint64_t chunk;
    std::memcpy(&chunk, data, 8);
    hash = (hash ^ chunk) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    data += 8;
    left -= 8;
  }
  uint64_t chunk = 0;
  for (size_t i = 0; i < left; ++i) chunk = chunk << 8 | static_cast<unsigned char>(data[i]);
  hash = (hash ^ chunk) * 0xD6E8FEB86659FD93u;
  return hash ^ hash >> 32;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

uint32_t RegisterTable::NameMap::Find(std::string_view name) const {
  if (buckets_.empty()) return kNone;
  const size_t mask = buckets_.size() - 1;
  for (size_t i = Hash(name) & mask;; i = (i + 1) & mask) {
    const uint32_t slot = buckets_[i];
    if (slot == kNone || slots_[slot].name == name) return slot;
  }
}

uint32_t RegisterTable::NameMap::FindOrAdd(std::string_view name) {
  if (slots_.size() * 2 >= buckets_.size()) Grow();
  const size_t mask = buckets_.size() - 1;
  size_t i = Hash(name) & mask;
  for (; buckets_[i] != kNone; i = (i + 1) & mask) {
    if (slots_[buckets_[i]].name == name) return buckets_[i];
  }
  buckets_[i] = static_cast<uint32_t>(slots_.size());
  slots_.push_back({name, kNone});
  return buckets_[i];
}

void RegisterTable::NameMap::Grow() {
  buckets_.assign(buckets_.empty() ? 64 : buckets_.size() * 4, kNone);
  const size_t mask = buckets_.size() - 1;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    size_t i = Hash(slots_[slot].name) & mask;
    while (buckets_[i] != kNone) i = (i + 1) & mask;
    buckets_[i] = slot;
  }
}

void RegisterTable::EnterScope() { scopes_.emplace_back(); }

void RegisterTable::LeaveScope() {
  if (scopes_.empty()) return;
  for (uint32_t i = scopes_.back().names; i != kNone; i = entries_[i].next_in_scope) {
    names_[entries_[i].slot].entry = entries_[i].shadowed;
  }
  for (uint32_t i = scopes_.back().ranges; i != kNone; i = entries_[i].next_in_scope) {
    ranges_[entries_[i].slot].entry = entries_[i].shadowed;
    --open_inner_ranges_;
  }
  scopes_.pop_back();
}

void RegisterTable::Push(NameMap& map, uint32_t slot, Entry entry) {
  const auto index = static_cast<uint32_t>(entries_.size());
  entry.slot = slot;
  entry.shadowed = map[slot].entry;
  if (entry.depth > 0) {
    Scope& scope = scopes_[entry.depth - 1];
    uint32_t& first = &map == &names_ ? scope.names : scope.ranges;
    entry.next_in_scope = first;
    first = index;
  }
  map[slot].entry = index;
  entries_.push_back(entry);
}

RegisterId RegisterTable::DeclareName(std::string_view name, std::string_view type,
                                      std::string_view vector_type,
                                      std::vector<Register>& registers) {
  Entry entry;
  entry.id = static_cast<RegisterId>(registers.size());
  entry.type = type;
  entry.vector_type = vector_type;
  entry.depth = static_cast<uint32_t>(scopes_.size());
  registers.push_back({std::string(name), type, vector_type});
  Push(names_, names_.FindOrAdd(name), entry);
  return entry.id;
}

void RegisterTable::DeclareRange(std::string_view prefix, uint32_t count, std::string_view type,
                                 std::string_view vector_type) {
  Entry entry;
  entry.count = count;
  entry.type = type;
  entry.vector_type = vector_type;
  entry.depth = static_cast<uint32_t>(scopes_.size());
  if (entry.depth > 0) ++open_inner_ranges_;
  if (!prefix.empty() && IsDigit(prefix.back())) prefix_ends_in_digit_ = true;
  Push(ranges_, ranges_.FindOrAdd(prefix), entry);
}

uint32_t RegisterTable::FindRange(std::string_view name) const {
  size_t first_digit = name.size();
  while (first_digit > 1 && IsDigit(name[first_digit - 1])) --first_digit;
  uint32_t best = kNone;
  uint64_t number = 0, power = 1;
  // "%r1<4>" declares %r10 ... %r13: where such a prefix exists, every split of the digits has to
  // be tried.
  for (size_t split = name.size(); split > first_digit && name.size() - split < 10;) {
    --split;
    number += static_cast<uint64_t>(name[split] - '0') * power;
    power *= 10;
    if (split != first_digit && !prefix_ends_in_digit_) continue;
    if (name[split] == '0' && split + 1 != name.size()) continue;  // members have no leading zeros
    const uint32_t slot = ranges_.Find(name.substr(0, split));
    if (slot == kNone) continue;
    uint32_t entry = ranges_[slot].entry;
    // An inner range hides only the members that it has.
    while (entry != kNone && number >= entries_[entry].count) entry = entries_[entry].shadowed;
    if (entry == kNone) continue;
    if (best == kNone || entries_[entry].depth > entries_[best].depth) best = entry;
  }
  return best;
}

RegisterId RegisterTable::Find(std::string_view name, std::vector<Register>& registers) {
  const uint32_t slot = names_.Find(name);
  const uint32_t exact = slot == kNone ? kNone : names_[slot].entry;
  if (exact != kNone && open_inner_ranges_ == 0) return entries_[exact].id;
  const uint32_t range = FindRange(name);
  if (range == kNone) return exact == kNone ? kNoRegister : entries_[exact].id;
  if (exact != kNone && entries_[exact].depth >= entries_[range].depth) return entries_[exact].id;
  // First mention of a member: it lives as long as its range does.
  Entry entry = entries_[range];
  entry.id = static_cast<RegisterId>(registers.size());
  registers.push_back({std::string(name), entry.type, entry.vector_type});
  entry.next_in_scope = kNone;
  Push(names_, names_.FindOrAdd(name), entry);
  return entry.id;
}

bool RegisterTable::EverDeclared(std::string_view name) const {
  if (names_.Find(name) != kNone) return true;
  for (size_t digits = name.size(); digits > 1 && IsDigit(name[digits - 1]);) {
    if (ranges_.Find(name.substr(0, --digits)) != kNone) return true;
  }
  return false;
}

}  // namespace ops_debug::ptx
