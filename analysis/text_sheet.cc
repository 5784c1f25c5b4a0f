// Widths and colours (text_sheet.h).
#include "analysis/text_sheet.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>

namespace ops_debug::analysis {
namespace {

constexpr size_t kLabelWidth = 14;
constexpr size_t kShownFrames = 12;

std::string FrameText(const HostFrame& frame) {
  if (frame.line > 0) {
    const std::string place = frame.file + ':' + std::to_string(frame.line);
    return frame.function.empty() ? place : frame.function + " at " + place;
  }
  if (!frame.function.empty()) {
    return frame.function + " + " + std::to_string(frame.function_offset) + " in " + frame.module;
  }
  return (frame.module.empty() ? "(unknown module)" : frame.module) + " + " +
         Hex(frame.module_offset);
}

}  // namespace

Tone ToneOf(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return Tone::kError;
    case Severity::kWarning:
      return Tone::kWarning;
    case Severity::kNote:
      break;
  }
  return Tone::kNote;
}

std::string TextSheet::Toned(Tone tone, const std::string& text) const {
  if (!colour_ || tone == Tone::kPlain) return text;
  static const std::map<Tone, std::string> kCodes = {{Tone::kError, "1;31"},
                                                     {Tone::kWarning, "1;33"},
                                                     {Tone::kNote, "1;36"},
                                                     {Tone::kStrong, "1"},
                                                     {Tone::kFaint, "34"}};
  return "\033[" + kCodes.at(tone) + 'm' + text + "\033[0m";
}

void TextSheet::Labelled(const std::string& label, const std::string& text) {
  std::string padded = "  " + label;
  padded.resize(2 + kLabelWidth, ' ');
  Line(Toned(Tone::kFaint, padded) + Printable(text));
}

template <class Frame>
void TextSheet::Frames(const std::vector<Frame>& stack) {
  const std::string margin(2 + kLabelWidth + 2, ' ');
  for (size_t i = 0; i < stack.size() && i < kShownFrames; ++i) {
    Line(margin + Printable(FrameText(stack[i])));
  }
  if (stack.size() > kShownFrames) {
    Line(margin + "and " + Count(stack.size() - kShownFrames, "more frame", "more frames"));
  }
}

void TextSheet::Stack(const std::vector<HostFrame>& stack) { Frames(stack); }

void TextSheet::Stack(const std::vector<PythonFrame>& stack) { Frames(stack); }

void TextSheet::Stack(const std::vector<PythonFrame>& python, const std::vector<HostFrame>& host) {
  Frames(python);
  if (python.empty()) {
    Frames(host);
    return;
  }
  std::vector<HostFrame> with_line;
  std::copy_if(host.begin(), host.end(), std::back_inserter(with_line),
               [](const HostFrame& frame) { return frame.line > 0; });
  Frames(with_line);
}

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, value);
  return text;
}

std::string Count(uint64_t count, const std::string& singular, const std::string& plural) {
  return std::to_string(count) + ' ' + (count == 1 ? singular : plural);
}

std::string Percent(double percent) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", std::floor(percent * 10 + 1e-6) / 10);
  std::string digits = text;
  if (digits.size() > 2 && digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits + " %";
}

std::string FrameText(const PythonFrame& frame) {
  std::string text = frame.file + ':' + std::to_string(frame.line);
  if (!frame.function.empty()) text += " in " + frame.function;
  return text;
}

std::string Printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return text;
}

}  // namespace ops_debug::analysis
