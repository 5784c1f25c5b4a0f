// Events for tests, from protobuf text.
#pragma once

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

#include "proto/events.pb.h"

namespace ops_debug::analysis {

template <class Message>
Message Parse(const std::string& text) {
  Message message;
  INFO(text);
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

}  // namespace ops_debug::analysis
