#include "common/text/output/event_writer.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// More white space than this at the end of a text is shown.
constexpr size_t kMaxHeldBlanks = 1024;

}  // namespace

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsBlank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsBlank(c); });
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

void AppendJsonEscaped(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte >= 0x20) {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
}

void EventWriter::Text(OutputEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
    return;
  }
  const bool in_call = kind == OutputEvent::Kind::kArguments;
  events_.push_back({kind, in_call ? calls_ - 1 : -1, std::string(text)});
}

void EventWriter::BeginCall(std::string_view name) {
  events_.push_back(
      {OutputEvent::Kind::kCallBegin, calls_++, std::string(name)});
}

void EventWriter::EndCall() {
  events_.push_back({OutputEvent::Kind::kCallEnd, calls_ - 1, ""});
}

OutputEvents EventWriter::Take() { return std::exchange(events_, {}); }

std::string TrimmedText::Push(std::string_view text) {
  std::string shown;
  size_t end = text.size();
  while (end > 0 && IsBlank(text[end - 1])) --end;
  if (end > 0) {
    std::string_view body = text.substr(0, end);
    if (!began_ && trim_start_) {
      held_.clear();
      while (IsBlank(body.front())) body.remove_prefix(1);
    }
    began_ = true;
    shown = std::exchange(held_, "");
    shown += body;
  }
  held_ += text.substr(end);
  if (held_.size() > kMaxHeldBlanks) {
    const size_t excess = held_.size() - kMaxHeldBlanks;
    if (began_ || !trim_start_) shown.append(held_, 0, excess);
    held_.erase(0, excess);
  }
  return shown;
}

std::string TrimmedText::TakeHeld() {
  std::string held = std::exchange(held_, "");
  return began_ || !trim_start_ ? held : "";
}

}  // namespace sluice
