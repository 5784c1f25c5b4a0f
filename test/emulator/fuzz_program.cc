#include "test/emulator/fuzz_program.h"

#include <cstring>
#include <iterator>

namespace ops_debug::emulator {
namespace {

constexpr const char* kForms[] = {
#include "test/emulator/fuzz_forms.inc"
};

constexpr uint32_t kMaximumStatements = 48;
constexpr const char* kImmediates[] = {
    "0",           "1",          "2",          "-1",        "31",  "32",    "33",
    "63",          "64",         "127",        "-128",      "255", "32767", "-32768",
    "65535",       "16",         "1024",       "7",         "3",   "100",   "2147483647",
    "-2147483648", "0x80000001", "0x7f800000", "0x3f800000"};
constexpr const char* kMasks[] = {"0xffffffff", "0xffffffff", "0xffffffff", "0xffffffff",
                                  "0x0000ffff", "0x55555555", "1",          "0"};

// What stands at the head of every program.
constexpr const char kPreamble[] = R"(.version 8.6
.target sm_90a
.address_size 64
.global .align 16 .b8 table[256];
.const .align 4 .u32 constants[4] = {1, 0x80000000, 3, 0xffffffff};
.extern .func (.param .b64 pointer) malloc (.param .b64 size);
.extern .func free (.param .b64 pointer);
.func (.reg .b32 out) recursive (.reg .b32 in);
.func (.reg .b32 out) helper (.reg .b32 in)
{
mad.lo.u32 out, in, 3, 1;
ret;
}
.func (.param .b64 out) wide (.param .b64 in)
{
.reg .b64 value;
ld.param.b64 value, [in];
add.u64 value, value, 1;
st.param.b64 [out], value;
ret;
}
.func (.reg .b32 out) recursive (.reg .b32 in)
{
.reg .pred more;
.reg .b32 less;
.local .align 4 .b8 room[32];
and.b32 less, in, 15;
setp.ne.u32 more, less, 0;
mov.u32 out, in;
@!more ret;
sub.u32 less, less, 1;
st.local.u32 [room], less;
call (out), recursive, (less);
ld.local.u32 less, [room];
add.u32 out, out, less;
ret;
}
.global .align 8 .u64 functions[3] = {helper, recursive, 0};
.visible .entry kernel(.param .u64 first, .param .u64 second, .param .u32 count)
{
.reg .pred %p<4>;
.reg .b16 %h<6>;
.reg .b32 %r<16>;
.reg .b64 %rd<16>;
.reg .b128 %q<2>;
.reg .f32 %f<10>;
.reg .f64 %fd<6>;
.shared .align 128 .b8 tile[4096];
.shared .align 16 .b8 words[256];
.shared .align 8 .b8 barriers[32];
.local .align 16 .b8 frame[128];
prototype: .callprototype (.reg .b32 _) _ (.reg .b32 _);
ld.param.u64 %rd8, [first];
ld.param.u64 %rd9, [second];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, 3;
mov.u32 %r3, 0x3c00bc00;
cvt.u64.u32 %rd0, %r0;
cvt.rn.f32.u32 %f0, %r0;
cvt.rn.f64.u32 %fd0, %r0;
setp.lt.u32 %p0, %r0, 16;
setp.ne.u32 %p1, %r1, 0;
mov.u32 %r12, barriers;
mbarrier.init.shared::cta.b64 [%r12], 32;
mbarrier.init.shared::cta.b64 [%r12+8], 1;
mbarrier.init.shared::cta.b64 [%r12+16], 2;
)";

class Writer {
 public:
  explicit Writer(Bytes& bytes) : bytes_(bytes) {}

  std::string Program() {
    text_ = kPreamble;
    const uint32_t count = 1 + bytes_.Below(kMaximumStatements);
    labels_ = count + 1;
    text_ += "targets: .branchtargets ";
    for (int i = 0; i < 4; ++i) {
      text_ += i == 0 ? "" : ", ";
      Label();
    }
    text_ += ";\n";
    for (uint32_t i = 0; i < count && !bytes_.empty(); ++i, ++written_) {
      text_ += "L" + std::to_string(i) + ":\n";
      Statement();
    }
    while (written_ < labels_) text_ += "L" + std::to_string(written_++) + ":\n";
    text_ += "st.global.u32 [%rd9], %r0;\nret;\n}\n";
    return std::move(text_);
  }

 private:
  void Statement() {
    const std::string_view form = kForms[bytes_.Below(std::size(kForms))];
    const uint32_t guard = bytes_.Byte();
    std::string before;
    std::string statement;
    Expand(form, statement, before);
    text_ += before;
    // A guard cannot stand before a scope.
    if (guard < 64 && statement[0] != '{' && statement.find("; ") == std::string::npos) {
      text_ += guard < 32 ? "@" : "@!";
      text_ += "%p" + std::to_string(guard % 4) + " ";
    }
    text_ += statement + "\n";
  }

  void Expand(std::string_view form, std::string& out, std::string& before) {
    for (size_t i = 0; i < form.size(); ++i) {
      if (form[i] == '<') {
        const size_t end = form.find('>', i);
        std::string_view options = form.substr(i + 1, end - i - 1);
        uint32_t count = 1;
        for (const char c : options) count += c == '|' ? 1 : 0;
        for (uint32_t skip = count == 1 ? 0 : bytes_.Below(count); skip > 0; --skip)
          options.remove_prefix(options.find('|') + 1);
        Expand(options.substr(0, options.find('|')), out, before);
        i = end;
      } else if (form[i] == '$') {
        Operand(form[++i], out, before);
      } else {
        out += form[i];
      }
    }
  }

  void Register(const char* prefix, uint32_t count, std::string& out) {
    out += prefix;
    out += std::to_string(bytes_.Below(count));
  }
  void Label() { text_ += "L" + std::to_string(bytes_.Below(labels_)); }

  // Mostly inside of a buffer; sometimes whatever a register holds.
  void Global(uint32_t mask, std::string& out, std::string& before) {
    if (bytes_.Chance(8)) {
      Register("[%rd", 8, out);
      out += "]";
      return;
    }
    before += "and.b32 %r15, %r" + std::to_string(bytes_.Below(8)) + ", " + std::to_string(mask) +
              ";\ncvt.u64.u32 %rd15, %r15;\nadd.u64 %rd15, %rd15, %rd" +
              (bytes_.Chance(128) ? "8" : "9") + ";\n";
    out += "[%rd15" + std::string(bytes_.Chance(64) ? "+16" : "") + "]";
  }
  void Shared(uint32_t mask, std::string& out, std::string& before) {
    if (bytes_.Chance(8)) {
      Register("[%r", 8, out);
      out += "]";
      return;
    }
    before += "and.b32 %r14, %r" + std::to_string(bytes_.Below(8)) + ", " + std::to_string(mask) +
              ";\nmov.u32 %r13, tile;\nadd.u32 %r14, %r14, %r13;\n";
    out += "[%r14]";
  }

  void Operand(char kind, std::string& out, std::string& before) {
    switch (kind) {
      case 'h':
        return Register("%h", 6, out);
      case 'r':
        return Register("%r", 8, out);
      case 'd':
        return Register("%rd", 8, out);
      case 'q':
        return Register("%q", 2, out);
      case 'f':
        return Register("%f", 10, out);
      case 'F':
        return Register("%fd", 6, out);
      case 'p':
        return Register("%p", 4, out);
      case 'i':
        out += kImmediates[bytes_.Below(std::size(kImmediates))];
        return;
      case 'n':
        out += std::to_string(bytes_.Below(32));
        return;
      case 'm':
        if (bytes_.Chance(16)) return Register("%r", 8, out);
        out += kMasks[bytes_.Below(std::size(kMasks))];
        return;
      case 'g':
        return Global(4092, out, before);
      case 'v':
        return Global(4080, out, before);
      case 's':
        return Shared(4092, out, before);
      case 'S':
        return Shared(4080, out, before);
      case 'b':
        before += "mov.u32 %r12, barriers;\n";
        out += "[%r12+" + std::to_string(8 * bytes_.Below(4)) + "]";
        return;
      case 'c':
        out += std::to_string(bytes_.Below(4) * 5);
        return;
      case 'L':
        out += "L" + std::to_string(bytes_.Below(labels_));
        return;
      default:
        out += kind;
    }
  }

  Bytes& bytes_;
  std::string text_;
  uint32_t labels_ = 0, written_ = 0;
};

}  // namespace

std::string FuzzProgram(Bytes& bytes) { return Writer(bytes).Program(); }

}  // namespace ops_debug::emulator
