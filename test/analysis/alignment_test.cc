// Which tensors of two sets are partners, and in which order they stand.
#include "analysis/compare/alignment.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"

namespace ops_debug::analysis {
namespace {

using Catch::Matchers::Contains;

proto::TensorSet Named(const std::vector<std::string>& names) {
  proto::TensorSet set;
  for (const std::string& name : names) set.tensors.push_back({.name = name});
  return set;
}

struct Aligned {
  std::string text;  // "a=b, c=-": candidate and reference of each pair, in order
  std::vector<std::string> remarks;
};

Aligned AlignNames(const std::vector<std::string>& candidate,
                   const std::vector<std::string>& reference, const std::string& rules = "") {
  const auto map = NameMap::Parse(rules, "names.map");
  REQUIRE(map.ok());
  const proto::TensorSet a = Named(candidate), b = Named(reference);
  const Alignment alignment = Align(a, b, rules.empty() ? nullptr : &*map);
  std::vector<std::string> pairs;
  for (const Partners& partners : alignment.pairs) {
    pairs.push_back((partners.candidate != nullptr ? partners.candidate->name : "-") + "=" +
                    (partners.reference != nullptr ? partners.reference->name : "-"));
  }
  return {absl::StrJoin(pairs, ", "), alignment.remarks};
}

TEST_CASE("the same names are partners, in the candidate's order") {
  CHECK(AlignNames({"z", "a", "m"}, {"a", "m", "z"}).text == "z=z, a=a, m=m");
}

TEST_CASE("names in the alphabet's order are put as people count") {
  CHECK(AlignNames({"l1", "l10", "l2"}, {"l1", "l10", "l2"}).text == "l1=l1, l2=l2, l10=l10");
}

TEST_CASE("two single tensors are partners whatever their names") {
  CHECK(AlignNames({"mine"}, {"theirs"}).text == "mine=theirs");
}

TEST_CASE("a missing tensor is named on its side, behind what it follows") {
  CHECK(AlignNames({"q", "c", "b"}, {"q", "x", "c", "b"}).text == "q=q, -=x, c=c, b=b");
  CHECK(AlignNames({"q", "c", "b"}, {"x", "q", "b"}).text == "-=x, q=q, c=-, b=b");
  CHECK(AlignNames({"a", "b"}, {}).text == "a=-, b=-");
}

TEST_CASE("calls with the same index are partners; a missing call stays missing") {
  CHECK(AlignNames({"k#0", "k#2", "x"}, {"k#0", "k#1", "k#2", "x"}).text ==
        "k#0=k#0, -=k#1, k#2=k#2, x=x");
}

TEST_CASE("calls that are counted differently are partners in their order") {
  CHECK(AlignNames({"k", "x"}, {"k#1", "x"}).text == "k=k#1, x=x");
  CHECK(AlignNames({"k#0/a", "k#0/b"}, {"k#1/b", "k#1/a"}).text == "k#0/a=k#1/a, k#0/b=k#1/b");
  CHECK(AlignNames({"k #10", "k #9", "x"}, {"k #1", "k #0", "x"}).text ==
        "k #9=k #0, k #10=k #1, x=x");
}

TEST_CASE("a map gives renamed tensors their partners") {
  CHECK(AlignNames({"old.w", "x"}, {"x", "new.w"}, "old.w: new.w\n").text == "old.w=new.w, x=x");
}

TEST_CASE("a map's regular expression carries groups over") {
  CHECK(AlignNames({"module.conv.w", "module.fc.b"}, {"w/conv", "b/fc"},
                   R"(module\.(\w+)\.(.*): \2/\1)")
            .text == "module.conv.w=w/conv, module.fc.b=b/fc");
}

TEST_CASE("a rule that spells a name comes before regular expressions") {
  CHECK(AlignNames({"b", "a"}, {"x.a", "x.b", "y"}, "(.*): x.\\1\na: y\n").text ==
        "-=x.a, b=x.b, a=y");
}

TEST_CASE("a regular expression leaves names alone that already have a partner of their own") {
  CHECK(AlignNames({"b", "a"}, {"x.a", "b"}, "(.*): x.\\1").text == "b=b, a=x.a");
}

TEST_CASE("rules that are wrong about the tensors are said") {
  const Aligned alignment = AlignNames({"a", "b"}, {"a", "b"}, "a: nowhere\nmisspelt: b\n");
  CHECK(alignment.text == "-=a, a=-, b=b");
  REQUIRE(alignment.remarks.size() == 2);
  CHECK_THAT(alignment.remarks[0], Contains("\"nowhere\", which the reference does not have"));
  CHECK_THAT(alignment.remarks[1], Contains("misspelt: b") && Contains("fits no tensor"));
}

TEST_CASE("a prefix that one side has more is shown as the rule that removes it") {
  const std::vector<std::string> with = {"module.a.w", "module.b"}, without = {"a.w", "b"};
  const std::string removing = R"(module\.(.*): \1)", adding = R"((.*): module.\1)";
  CHECK_THAT(AlignNames(with, without).remarks.at(0), Contains(removing));
  CHECK(AlignNames(with, without, removing).text == "module.a.w=a.w, module.b=b");
  CHECK_THAT(AlignNames(without, with).remarks.at(0), Contains(adding));
  CHECK(AlignNames(without, with, adding).text == "a.w=module.a.w, b=module.b");
}

TEST_CASE("a map file may quote names, comment lines and leave lines empty") {
  const auto map = NameMap::Parse("# names\n\n'odd: name' : \"#1\"\r\nplain: ' x '\n", "names.map");
  REQUIRE(map.ok());
  const auto exists = [](const std::string&) { return true; };
  CHECK(map->ReferenceOf("odd: name", exists) == "#1");
  CHECK(map->ReferenceOf("plain", exists) == " x ");
  CHECK_FALSE(map->ReferenceOf("other", exists).has_value());
}

TEST_CASE("a group before a digit, and dollar signs, stand for themselves") {
  const auto map = NameMap::Parse(R"(c(\d): \10$&)", "names.map");
  REQUIRE(map.ok());
  CHECK(map->ReferenceOf("c7", [](const std::string&) { return true; }) == "70$&");
}

TEST_CASE("a map file with faults is refused with line and place") {
  const auto [text, words] = GENERATE(table<const char*, const char*>(
      {{"fine: yes\nno colon\n", "line 2: expected"},
       {"a:b\n", "line 1: expected"},
       {"a: \n", "line 1: expected"},
       {"'open: b\n", "line 1: expected"},
       {"a(b: c\n", "line 1: \"a(b\", character 2: this ( is never closed"}}));
  const auto map = NameMap::Parse(text, "names.map");
  INFO(text);
  REQUIRE_FALSE(map.ok());
  CHECK_THAT(std::string(map.status().message()), Contains("names.map") && Contains(words));
}

TEST_CASE("a map file that cannot be read is said") {
  CHECK_THAT(std::string(NameMap::Read("/no/such/names.map").status().message()),
             Contains("/no/such/names.map"));
}

}  // namespace
}  // namespace ops_debug::analysis
