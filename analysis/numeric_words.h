// Values and operations of floating-point instructions in the words of an author.
#pragma once

#include <optional>
#include <string>

#include "proto/events.pb.h"

namespace ops_debug::analysis {

// Of a floating-point or integer type that a NumericValue names; nothing for other types.
std::optional<double> ToDouble(const proto::NumericValue& value);
// The shortest decimal that is this value in its type: "74213.5", "-inf", "NaN", "-7".
std::string NumberText(const proto::NumericValue& value);
std::string NumberText(double value);
// "65504" for "f16"; empty for types without a largest finite value here.
std::string LargestText(const std::string& type);
// "half", "bfloat16", "float", "double"...; the PTX name if it has no other.
std::string TypeName(const std::string& type);

// "cvt.rn.f16.f32" of "@%p1 cvt.rn.f16.f32 %h1, %f2;".
std::string Opcode(const std::string& instruction);
// "sub", of the same text's opcode.
std::string OperationOf(const std::string& instruction);

// "cvt.rn.f16.f32 of 74213.5", "sub.f32: (-inf) - (-inf)", "fma.rn.f16: 2 * 3 + 65472".
std::string OperationText(const proto::NumericalFault& fault);

}  // namespace ops_debug::analysis
