#include "common/text/output/json_scan.h"

#include "common/text/output/event_writer.h"

namespace sluice {
namespace {

constexpr size_t kMaxClosers = 256;  // deeper nesting is not closed

}  // namespace

JsonScan::Step JsonScan::NextInString(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    if (depth_ == 0) return Step::kLast;
  }
  return Step::kWithin;
}

JsonScan::Step JsonScan::Next(char c) {
  if (in_string_) return NextInString(c);
  const bool first = !began_;
  began_ = true;
  if (scalar_) {
    const bool ends = IsBlank(c) || c == ',' || c == '}' || c == ']';
    return ends ? Step::kBehind : Step::kWithin;
  }
  if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
    if (depth_ <= kMaxClosers) closers_ += c == '{' ? '}' : ']';
  } else if (first) {
    scalar_ = true;
  } else if (c == '}' || c == ']') {
    if (depth_ <= kMaxClosers) closers_.pop_back();
    if (--depth_ == 0) return Step::kLast;
  }
  return Step::kWithin;
}

std::string JsonScan::Closers() const {
  std::string closers;
  if (in_string_) closers = escaped_ ? "\\\"" : "\"";
  if (depth_ > kMaxClosers) return closers;
  closers.append(closers_.rbegin(), closers_.rend());
  return closers;
}

}  // namespace sluice
