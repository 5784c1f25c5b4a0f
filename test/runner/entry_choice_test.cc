#include "runner/entry_choice.h"

#include <catch2/catch.hpp>

namespace ops_debug::runner {
namespace {

Entry Named(const std::string& mangled) {
  Entry entry;
  entry.mangled = mangled;
  entry.demangled = Demangle(mangled);
  entry.name = UnqualifiedName(entry.demangled);
  return entry;
}

const std::vector<Entry> kTwo = {Named("_Z5scalePff"), Named("_Z8addScalePKfPf")};
const std::vector<Entry> kOverloads = {Named("_Z1kPf"), Named("_Z1kPd")};

std::string Message(const std::vector<Entry>& entries, std::string_view wanted) {
  return std::string(ChooseEntry(entries, wanted, "f.cu").status().message());
}

TEST_CASE("the only entry needs no name") {
  CHECK(ChooseEntry({kTwo[0]}, "", "f.cu")->name == "scale");
}

TEST_CASE("several entries are listed, demangled") {
  const std::string message = Message(kTwo, "");
  CHECK(message.find("f.cu has 2 kernels:") == 0);
  CHECK(message.find("scale(float*, float)") != std::string::npos);
  CHECK(message.find("addScale(float const*, float*)") != std::string::npos);
  CHECK(message.find("choose one: --entry scale") != std::string::npos);
}

TEST_CASE("an entry is chosen by mangled name, signature, name or part") {
  const char* wanted =
      GENERATE("_Z8addScalePKfPf", "addScale(float const*, float*)", "addScale", "const");
  CHECK(ChooseEntry(kTwo, wanted, "f.cu")->name == "addScale");
}

TEST_CASE("the plain name wins over a part of another name") {
  CHECK(ChooseEntry(kTwo, "scale", "f.cu")->name == "scale");
}

TEST_CASE("a name that fits several overloads or none is an error with the choices") {
  CHECK(Message(kOverloads, "k").find("--entry k fits 2 kernels") == 0);
  CHECK(ChooseEntry(kOverloads, "k(double*)", "f.cu")->mangled == "_Z1kPd");
  CHECK(Message(kTwo, "mul").find("has no such kernel; it has:") != std::string::npos);
}

TEST_CASE("no entry at all points to templates") {
  CHECK(Message({}, "").find("a template an explicit instantiation") != std::string::npos);
}

}  // namespace
}  // namespace ops_debug::runner
