// Rewriting happens inside the user's process: PTX that parses but makes no sense must come out as
// an error or as some rewriting, never as a crash. Tokens of real files are deleted, doubled and
// exchanged, by a fixed sequence.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "shadow/passes/instrument.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

constexpr Checks kAllChecks{.races = true, .sync = true, .init = true};

std::vector<std::string> Tokens(const std::string& text) {
  std::vector<std::string> tokens;
  std::string token;
  for (const char c : text) {
    const bool word =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
    if (!word && !token.empty()) tokens.push_back(std::exchange(token, {}));
    if (word) {
      token.push_back(c);
    } else {
      tokens.emplace_back(1, c);
    }
  }
  if (!token.empty()) tokens.push_back(token);
  return tokens;
}

std::string Damage(std::vector<std::string> tokens, std::mt19937& random) {
  const auto pick = [&] {
    return std::uniform_int_distribution<size_t>(0, tokens.size() - 1)(random);
  };
  const int changes = std::uniform_int_distribution<int>(1, 3)(random);
  for (int i = 0; i < changes; i++) {
    const size_t at = pick();
    switch (random() % 3) {
      case 0:
        tokens[at].clear();
        break;
      case 1:
        tokens[at] += tokens[at];
        break;
      default:
        std::swap(tokens[at], tokens[pick()]);
    }
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

TEST_CASE("damaged PTX is rewritten or refused") {
  std::mt19937 random(7);
  size_t files = 0, accepted = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OPS_DEBUG_PTX_DATA)) {
    if (entry.path().extension() != ".ptx") continue;
    files++;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<std::string> tokens =
        Tokens(std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    for (int round = 0; round < 200; round++) {
      const std::string text = Damage(tokens, random);
      INFO(entry.path() << " round " << round);
      (Instrument(text, Rewrite::kMemoryChecks, kAllChecks).ok() ? accepted : refused)++;
    }
  }
  CHECK(files >= 3);
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("instructions that lack operands or types are no harm") {
  for (const char* instruction : {"ld %r1, [%rd1];",
                                  "ld.global.u32 %r1;",
                                  "ld.global.u32;",
                                  "st.global.u32 [%rd1];",
                                  "st [%rd1], %r1;",
                                  "mov.u32 %r1;",
                                  "mov;",
                                  "add.s64 %rd1;",
                                  "add.s64 %rd1, %rd2;",
                                  "mad.lo.s32 %r1, %r2;",
                                  "shl.b64 %rd1;",
                                  "selp.b64 %rd1;",
                                  "cvta.to.global.u64 %rd1;",
                                  "cvt.u64.u32 %rd1;",
                                  "cp.async.ca.shared.global [%r1];",
                                  "cp.async.ca.shared.global [%r1], [%rd1], %r2;",
                                  "cp.async;",
                                  "cp.async.ca.shared.global [%r1], %rd1, 4;",
                                  "ldmatrix.sync.aligned.m8n8.x4.shared.b16;",
                                  "atom.global.add.u32;",
                                  "red.global.add.u32;",
                                  "call;",
                                  "call (%r1);",
                                  "ld.global.u32 %r1, [];",
                                  "or.b64 %rd1;",
                                  "setp.eq.u32;",
                                  "{ld.global.u32 %r1, [%rd1];}",
                                  "ld.global.u32 {%r1}, [%rd1];",
                                  "ld.global.u32 _, [%rd1];"}) {
    INFO(instruction);
    const std::string text =
        ModuleText(EntryText("ld.param.u64 %rd1, [k_p];\n" + std::string(instruction)));
    auto result = Instrument(text, Rewrite::kMemoryChecks, kAllChecks);
    CHECK((result.ok() ? !result->ptx.empty() : !result.error().message.empty()));
  }
}

}  // namespace
}  // namespace ops_debug::shadow
