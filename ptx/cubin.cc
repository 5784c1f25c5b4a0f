// Reads symbols at once and line programs when asked: a fault is rare, a module load is not.
#include "ptx/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ops_debug::ptx {
namespace {

constexpr uint16_t kMachineCuda = 190;    // EM_CUDA
constexpr uint8_t kSymbolIsEntry = 0x10;  // bit of st_other: STO_CUDA_ENTRY

// ---- ELF

class Elf {
 public:
  static std::optional<Elf> Open(std::string_view bytes) {
    Elf elf(bytes);
    const Elf64_Ehdr* header = elf.At<Elf64_Ehdr>(0, 1);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachineCuda ||
        header->e_shentsize != sizeof(Elf64_Shdr)) {
      return std::nullopt;
    }
    elf.sections_ = elf.At<Elf64_Shdr>(header->e_shoff, header->e_shnum);
    if (!elf.sections_ || header->e_shstrndx >= header->e_shnum) return std::nullopt;
    elf.count_ = header->e_shnum;
    elf.names_ = header->e_shstrndx;
    return elf;
  }

  uint32_t count() const { return count_; }
  const Elf64_Shdr& section(uint32_t index) const { return sections_[index]; }
  std::string_view Name(uint32_t index) const { return String(names_, sections_[index].sh_name); }
  std::string_view Contents(uint32_t index) const {
    if (index >= count_ || sections_[index].sh_type == SHT_NOBITS) return {};
    const char* start = At<char>(sections_[index].sh_offset, sections_[index].sh_size);
    return start ? std::string_view(start, sections_[index].sh_size) : std::string_view();
  }
  std::string_view String(uint32_t table, uint64_t offset) const {
    const std::string_view strings = Contents(table);
    if (offset >= strings.size()) return {};
    const size_t end = strings.find('\0', offset);
    return end == std::string_view::npos ? std::string_view()
                                         : strings.substr(offset, end - offset);
  }
  template <class T>
  std::pair<const T*, uint64_t> Table(uint32_t index) const {
    if (index >= count_) return {nullptr, 0};
    const uint64_t entries = sections_[index].sh_size / sizeof(T);
    const T* start = At<T>(sections_[index].sh_offset, entries);
    return {start, start ? entries : 0};
  }

 private:
  explicit Elf(std::string_view bytes) : bytes_(bytes) {}

  // Unaligned images would need copies; every producer aligns its tables.
  template <class T>
  const T* At(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return nullptr;
    const char* start = bytes_.data() + offset;
    if (reinterpret_cast<uintptr_t>(start) % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T*>(start);
  }

  std::string_view bytes_;
  const Elf64_Shdr* sections_ = nullptr;
  uint32_t count_ = 0;
  uint32_t names_ = 0;
};

constexpr std::string_view kTextPrefix = ".text.";

// ---- Line programs

class Reader {
 public:
  explicit Reader(std::string_view bytes, uint64_t offset = 0) : bytes_(bytes), at_(offset) {}
  bool ok() const { return ok_; }
  uint64_t at() const { return at_; }
  bool AtEnd(uint64_t end) const { return !ok_ || at_ >= end; }
  void Seek(uint64_t offset) { at_ = offset; }

  template <class T>
  T Fixed() {
    T value{};
    if (!Need(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  uint64_t Address(uint32_t bytes) {
    switch (bytes) {
      case 1:
        return Fixed<uint8_t>();
      case 2:
        return Fixed<uint16_t>();
      case 4:
        return Fixed<uint32_t>();
      case 8:
        return Fixed<uint64_t>();
      default:
        ok_ = false;
        return 0;
    }
  }
  uint64_t Unsigned() {
    uint64_t value = 0;
    for (uint32_t shift = 0;; shift += 7) {
      const auto byte = Fixed<uint8_t>();
      if (!ok_) return 0;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }
  int64_t Signed() {
    uint64_t value = 0;
    uint32_t shift = 0;
    while (true) {
      const auto byte = Fixed<uint8_t>();
      if (!ok_) return 0;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if ((byte & 0x80) == 0) {
        if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
        return static_cast<int64_t>(value);
      }
    }
  }
  std::string_view String() {
    const size_t end = at_ < bytes_.size() ? bytes_.find('\0', at_) : std::string_view::npos;
    if (end == std::string_view::npos) {
      ok_ = false;
      return {};
    }
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }
  void Skip(uint64_t count) {
    if (Need(count)) at_ += count;
  }

 private:
  bool Need(uint64_t count) {
    if (ok_ && at_ <= bytes_.size() && count <= bytes_.size() - at_) return true;
    ok_ = false;
    return false;
  }

  std::string_view bytes_;
  uint64_t at_;
  bool ok_ = true;
};

std::string_view StringAt(std::string_view section, uint64_t offset) {
  Reader reader(section, offset);
  return reader.String();
}

// A row of the line table; `context` and `function` say that the code was inlined.
struct Row {
  uint64_t address = 0;
  uint32_t file = 0;
  uint32_t line = 0;
  uint64_t context = 0;   // row number (from 1) of the call; 0: not inlined
  uint64_t function = 0;  // offset in .debug_str of the inlined function's name
};

struct FileName {
  std::string_view name;
  uint64_t folder = 0;
};

// Prologue of one line program: what its opcodes need.
struct Program {
  uint64_t end = 0;
  uint32_t version = 0;
  uint32_t minimum_instruction = 1;
  bool starts_statement = true;
  int32_t line_base = 0;
  uint32_t line_range = 1;
  uint32_t opcode_base = 1;
  std::vector<uint8_t> operands;
  std::vector<std::string_view> folders;  // index 0 is the compilation's own (empty before DWARF 5)
  std::vector<FileName> files;

  std::string PathOf(uint32_t file) const {
    const uint64_t index = version >= 5 ? file : uint64_t{file} - 1;
    if ((version < 5 && file == 0) || index >= files.size()) return "";
    const FileName& entry = files[index];
    if (entry.name.starts_with('/') || entry.folder >= folders.size() ||
        folders[entry.folder].empty()) {
      return std::string(entry.name);
    }
    return std::string(folders[entry.folder]) + "/" + std::string(entry.name);
  }
};

// DWARF 5: lists described by (content type, form) pairs.
void ReadEntryList(Reader& reader, std::string_view strings, bool wide,
                   std::vector<FileName>* out) {
  constexpr uint64_t kPath = 1, kFolder = 2;
  std::vector<std::pair<uint64_t, uint64_t>> format(reader.Fixed<uint8_t>());
  for (auto& [type, form] : format) {
    type = reader.Unsigned();
    form = reader.Unsigned();
  }
  const uint64_t count = reader.Unsigned();
  if (format.empty()) return;  // entries of no bytes, as many as the file claims
  for (uint64_t i = 0; i < count && reader.ok(); i++) {
    FileName entry;
    for (const auto& [type, form] : format) {
      std::string_view text;
      uint64_t number = 0;
      switch (form) {
        case 0x08:  // DW_FORM_string
          text = reader.String();
          break;
        case 0x0e:  // DW_FORM_strp
        case 0x1f:  // DW_FORM_line_strp
          text = StringAt(strings, wide ? reader.Fixed<uint64_t>() : reader.Fixed<uint32_t>());
          break;
        case 0x0b:  // DW_FORM_data1
          number = reader.Fixed<uint8_t>();
          break;
        case 0x05:  // DW_FORM_data2
          number = reader.Fixed<uint16_t>();
          break;
        case 0x06:  // DW_FORM_data4
          number = reader.Fixed<uint32_t>();
          break;
        case 0x07:  // DW_FORM_data8
          number = reader.Fixed<uint64_t>();
          break;
        case 0x0f:  // DW_FORM_udata
          number = reader.Unsigned();
          break;
        case 0x1e:  // DW_FORM_data16: a checksum
          reader.Skip(16);
          break;
        case 0x09:  // DW_FORM_block
          reader.Skip(reader.Unsigned());
          break;
        default:
          return;
      }
      if (type == kPath) entry.name = text;
      if (type == kFolder) entry.folder = number;
    }
    out->push_back(entry);
  }
}

// False: not a line program we understand; `program->end` says where the next one starts if that is
// known.
bool ReadPrologue(Reader& reader, std::string_view strings, Program* program) {
  uint64_t length = reader.Fixed<uint32_t>();
  const bool wide = length == 0xffffffff;
  if (wide) length = reader.Fixed<uint64_t>();
  if (!reader.ok() || length > UINT64_MAX - reader.at()) return false;
  program->end = reader.at() + length;
  program->version = reader.Fixed<uint16_t>();
  if (program->version < 2 || program->version > 5) return false;
  if (program->version >= 5) reader.Skip(2);  // sizes of addresses and segment selectors
  const uint64_t prologue_length = wide ? reader.Fixed<uint64_t>() : reader.Fixed<uint32_t>();
  const uint64_t first_opcode = reader.at() + prologue_length;
  program->minimum_instruction = reader.Fixed<uint8_t>();
  if (program->version >= 4) reader.Skip(1);  // operations per VLIW instruction
  program->starts_statement = reader.Fixed<uint8_t>() != 0;
  const auto line_base = reader.Fixed<uint8_t>();  // a signed byte
  program->line_base = line_base < 128 ? line_base : line_base - 256;
  program->line_range = reader.Fixed<uint8_t>();
  program->opcode_base = reader.Fixed<uint8_t>();
  if (!reader.ok() || program->line_range == 0 || program->opcode_base == 0) return false;
  for (uint32_t i = 1; i < program->opcode_base; i++) {
    program->operands.push_back(reader.Fixed<uint8_t>());
  }
  if (program->version >= 5) {
    std::vector<FileName> folders;
    ReadEntryList(reader, strings, wide, &folders);
    for (const FileName& folder : folders) program->folders.push_back(folder.name);
    ReadEntryList(reader, strings, wide, &program->files);
  } else {
    program->folders.emplace_back();
    for (std::string_view name = reader.String(); !name.empty(); name = reader.String()) {
      program->folders.push_back(name);
    }
    for (std::string_view name = reader.String(); !name.empty(); name = reader.String()) {
      const uint64_t folder = reader.Unsigned();
      reader.Unsigned();  // time
      reader.Unsigned();  // size
      program->files.push_back({name, folder});
    }
  }
  reader.Seek(first_opcode);
  return reader.ok();
}

// Runs a line program (DWARF 5 section 6.2.5). `begin(offset)` is told where each sequence's
// address field lies and answers whether its rows are wanted; `end(rows, address)` gets them.
template <class Begin, class End>
bool RunProgram(Reader& reader, const Program& program, Begin begin, End end) {
  Row row{.file = 1, .line = 1};
  std::vector<Row> rows;
  bool wanted = false;
  while (!reader.AtEnd(program.end)) {
    const auto opcode = reader.Fixed<uint8_t>();
    if (opcode >= program.opcode_base) {
      const uint32_t adjusted = opcode - program.opcode_base;
      row.address += uint64_t{adjusted / program.line_range} * program.minimum_instruction;
      row.line += static_cast<uint32_t>(program.line_base) + adjusted % program.line_range;
      if (wanted) rows.push_back(row);
      continue;
    }
    switch (opcode) {
      case 0: {
        const uint64_t length = reader.Unsigned();
        const uint64_t next = reader.at() + length;
        if (length == 0 || next < reader.at()) return false;
        switch (reader.Fixed<uint8_t>()) {
          case 1:  // DW_LNE_end_sequence
            if (wanted && end(rows, row.address)) return true;
            rows.clear();
            wanted = false;
            row = Row{.file = 1, .line = 1};
            break;
          case 2:  // DW_LNE_set_address
            wanted = begin(reader.at(), &row.address);
            if (!wanted) row.address = 0;
            break;
          case 0x90:  // DW_LNE_NVIDIA_inlined_call
            row.context = reader.Unsigned();
            row.function = reader.Unsigned();
            break;
          default:
            break;  // of no interest, or somebody's extension: its length is known
        }
        reader.Seek(next);
        break;
      }
      case 1:  // DW_LNS_copy
        if (wanted) rows.push_back(row);
        break;
      case 2:  // DW_LNS_advance_pc
        row.address += reader.Unsigned() * program.minimum_instruction;
        break;
      case 3:  // DW_LNS_advance_line
        row.line = static_cast<uint32_t>(row.line + reader.Signed());
        break;
      case 4:  // DW_LNS_set_file
        row.file = static_cast<uint32_t>(reader.Unsigned());
        break;
      case 8:  // DW_LNS_const_add_pc
        row.address += uint64_t{(255 - program.opcode_base) / program.line_range} *
                       program.minimum_instruction;
        break;
      case 9:  // DW_LNS_fixed_advance_pc
        row.address += reader.Fixed<uint16_t>();
        break;
      default:
        for (uint8_t i = 0; i < program.operands[opcode - 1]; i++) reader.Unsigned();
        break;
    }
  }
  return false;
}

}  // namespace

std::optional<CubinCode> CubinCode::Read(std::string_view bytes) {
  const std::optional<Elf> elf = Elf::Open(bytes);
  if (!elf) return std::nullopt;
  CubinCode code;
  uint32_t symbol_table = 0, lines = 0, line_relocations = 0;
  for (uint32_t i = 0; i < elf->count(); i++) {
    const std::string_view name = elf->Name(i);
    if (elf->section(i).sh_type == SHT_SYMTAB) symbol_table = i;
    if (name == ".debug_line") lines = i;
    if (name == ".debug_str") code.string_section_ = elf->Contents(i);
  }
  for (uint32_t i = 0; lines != 0 && i < elf->count(); i++) {
    if (elf->section(i).sh_type == SHT_RELA && elf->section(i).sh_info == lines) {
      line_relocations = i;
    }
  }
  if (symbol_table == 0) return code;
  const auto [symbols, symbol_count] = elf->Table<Elf64_Sym>(symbol_table);
  const uint32_t strings = elf->section(symbol_table).sh_link;
  for (uint64_t i = 0; i < symbol_count; i++) {
    const Elf64_Sym& symbol = symbols[i];
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx >= elf->count()) continue;
    const std::string_view section = elf->Name(symbol.st_shndx);
    if (!section.starts_with(kTextPrefix)) continue;
    const std::string_view owner = section.substr(kTextPrefix.size());
    std::string_view name = elf->String(strings, symbol.st_name);
    if (name == owner) {
      code.functions_.push_back(
          {std::string(name), symbol.st_size, (symbol.st_other & kSymbolIsEntry) != 0});
      continue;
    }
    // "$kernel$function"
    if (name.size() > owner.size() + 2 && name[0] == '$' && name.substr(1, owner.size()) == owner &&
        name[owner.size() + 1] == '$') {
      name.remove_prefix(owner.size() + 2);
    }
    code.inner_[std::string(owner)].push_back({std::string(name), symbol.st_value, symbol.st_size});
  }
  if (lines == 0 || line_relocations == 0) return code;
  const auto [relocations, relocation_count] = elf->Table<Elf64_Rela>(line_relocations);
  for (uint64_t i = 0; i < relocation_count; i++) {
    const uint64_t index = ELF64_R_SYM(relocations[i].r_info);
    if (index >= symbol_count || symbols[index].st_shndx >= elf->count()) continue;
    const std::string_view section = elf->Name(symbols[index].st_shndx);
    if (!section.starts_with(kTextPrefix)) continue;
    code.line_targets_[relocations[i].r_offset] = {
        std::string(section.substr(kTextPrefix.size())),
        symbols[index].st_value + static_cast<uint64_t>(relocations[i].r_addend)};
  }
  code.line_section_ = elf->Contents(lines);
  return code;
}

std::optional<CubinCode::Inner> CubinCode::InnerAt(std::string_view function,
                                                   uint64_t offset) const {
  const auto found = inner_.find(function);
  if (found == inner_.end()) return std::nullopt;
  for (const Inner& inner : found->second) {
    if (offset >= inner.offset && offset - inner.offset < inner.size_bytes) return inner;
  }
  return std::nullopt;
}

std::vector<CodeFrame> CubinCode::FramesAt(std::string_view function, uint64_t offset) const {
  std::vector<CodeFrame> frames;
  const std::optional<Inner> inner = InnerAt(function, offset);
  const std::string own_name = inner ? inner->name : std::string(function);
  Reader reader(line_section_);
  while (frames.empty() && !reader.AtEnd(line_section_.size())) {
    Program program;
    if (ReadPrologue(reader, string_section_, &program)) {
      RunProgram(
          reader, program,
          [&](uint64_t field, uint64_t* address) {
            const auto target = line_targets_.find(field);
            if (target == line_targets_.end() || target->second.function != function) return false;
            *address = target->second.addend;
            return true;
          },
          [&](const std::vector<Row>& rows, uint64_t end) {
            // The last row at or before the instruction; rows are sorted by address.
            const auto behind = std::upper_bound(
                rows.begin(), rows.end(), offset,
                [](uint64_t wanted, const Row& row) { return wanted < row.address; });
            if (behind == rows.begin() || offset >= end) return false;
            uint64_t index = static_cast<uint64_t>(behind - rows.begin());  // from 1
            // A call's row comes before the rows that were inlined there, so this ends.
            while (index != 0) {
              const Row& row = rows[index - 1];
              const bool inlined = row.context != 0 && row.context < index;
              frames.push_back(
                  {inlined ? std::string(StringAt(string_section_, row.function)) : own_name,
                   program.PathOf(row.file), row.line});
              index = inlined ? row.context : 0;
            }
            return true;
          });
    }
    if (program.end <= reader.at() && program.end == 0) break;
    reader = Reader(line_section_, program.end);
  }
  return frames;
}

}  // namespace ops_debug::ptx
