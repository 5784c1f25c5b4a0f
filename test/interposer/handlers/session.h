// A session inside the test program: the ring that the handlers write to, read back and decoded.
#pragma once

#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace ops_debug::interposer::handlers_test {

// Events since the last call.
std::vector<proto::Event> TakeEvents();

// Those of one kind: Take<proto::Fault>(events, &proto::Event::has_fault, &proto::Event::fault).
template <class T>
std::vector<T> Pick(const std::vector<proto::Event>& events, bool (proto::Event::*has)() const,
                    const T& (proto::Event::*get)() const) {
  std::vector<T> out;
  for (const proto::Event& event : events) {
    if ((event.*has)()) out.push_back((event.*get)());
  }
  return out;
}
inline std::vector<proto::Fault> Faults(const std::vector<proto::Event>& events) {
  return Pick<proto::Fault>(events, &proto::Event::has_fault, &proto::Event::fault);
}
inline std::vector<proto::ModuleLoaded> Modules(const std::vector<proto::Event>& events) {
  return Pick<proto::ModuleLoaded>(events, &proto::Event::has_module_loaded,
                                   &proto::Event::module_loaded);
}

// Module text with one kernel `scale(float* p, int n)` that loads and stores through p, at two
// sites.
const char* ScaleText();

// Makes the fake device's context current in this thread and forgets what earlier tests did.
void StartTest();

}  // namespace ops_debug::interposer::handlers_test
