// A text report in the making: lines, labels and colours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ops_debug::analysis {

enum class Tone : uint8_t { kPlain, kError, kWarning, kNote, kStrong, kFaint };

Tone ToneOf(Severity severity);

class TextSheet {
 public:
  explicit TextSheet(bool colour) : colour_(colour) {}

  std::string Toned(Tone tone, const std::string& text) const;
  void Line(const std::string& text) { text_ += text + '\n'; }
  // Whole lines, as they are.
  void Block(const std::string& text) { text_ += text; }
  // "  address       0x7f..."
  void Labelled(const std::string& label, const std::string& text);
  // Frames below a label.
  void Stack(const std::vector<HostFrame>& stack);
  void Stack(const std::vector<PythonFrame>& stack);
  // Where Python called, the host frames are those of the interpreter and of libraries; those with
  // a line are of code that somebody works on (an extension), and only they are shown.
  void Stack(const std::vector<PythonFrame>& python, const std::vector<HostFrame>& host);

  const std::string& text() const { return text_; }

 private:
  template <class Frame>
  void Frames(const std::vector<Frame>& stack);

  bool colour_;
  std::string text_;
};

std::string Hex(uint64_t value);
// "1 byte", "2 bytes".
std::string Count(uint64_t count, const std::string& singular, const std::string& plural);
// "99.9 %". Rounded down: 99.96 % is not all.
std::string Percent(double percent);
std::string FrameText(const PythonFrame& frame);
// Names come from other processes: control characters must not reach a terminal.
std::string Printable(std::string text);

}  // namespace ops_debug::analysis
