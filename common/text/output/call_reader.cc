#include "common/text/output/call_reader.h"

#include <algorithm>

#include "common/text/output/arguments_writer.h"

namespace sluice {
namespace {

// White space between two tags that belong together.
constexpr size_t kMaxBlanksBetween = 64;

}  // namespace

void PendingText::Append(std::string_view text) {
  data_.erase(0, begin_);
  begin_ = 0;
  data_ += text;
}

void PendingText::End(OutputEnd end) {
  ended_ = true;
  end_ = end;
}

void PendingText::ConsumeBlanks() {
  while (begin_ < data_.size() && IsBlank(data_[begin_])) ++begin_;
}

PendingText::Match PendingText::Find(std::string_view tag, size_t at) const {
  const std::string_view rest = text().substr(std::min(at, text().size()));
  if (rest.starts_with(tag)) return Match::kYes;
  return tag.starts_with(rest) && !ended_ ? Match::kMaybe : Match::kNo;
}

PendingText::Match PendingText::FindAny(
    std::initializer_list<std::string_view> tags, size_t at) const {
  Match best = Match::kNo;
  for (const std::string_view tag : tags) {
    best = std::max(best, Find(tag, at));
  }
  return best;
}

PendingText::Match PendingText::FindNext(
    std::initializer_list<std::string_view> tags, size_t at) const {
  const size_t limit = at + kMaxBlanksBetween;
  while (at < text().size() && at < limit && IsBlank(text()[at])) ++at;
  if (ended_) {
    const std::string_view rest = text().substr(std::min(at, text().size()));
    for (const std::string_view tag : tags) {
      if (tag.starts_with(rest)) return Match::kYes;
    }
  }
  return FindAny(tags, at);
}

bool PendingText::EndsWithin(std::string_view tag, size_t at) const {
  const std::string_view rest = text().substr(std::min(at, text().size()));
  return ended_ && !rest.empty() && tag.starts_with(rest);
}

PendingText::Match PendingText::ConsumeTag(std::string_view tag) {
  ConsumeBlanks();
  const Match match = Find(tag);
  if (match == Match::kYes) {
    Consume(tag.size());
  } else if (EndsWithin(tag, 0)) {
    Consume(text().size());
    return Match::kYes;
  }
  return match;
}

CallReader::Result ReadCallTag(std::string_view begin, const ToolTypes* known,
                               PendingText& input, ArgumentsWriter& arguments,
                               EventWriter& out) {
  const std::string_view text = input.text();
  size_t at = 0;
  while (at < text.size() && IsBlank(text[at])) ++at;
  if (at > kMaxCallHead) return CallReader::Result::kNoCall;
  const auto match = input.Find(begin, at);
  if (match == PendingText::Match::kMaybe) return CallReader::Result::kMore;
  if (match == PendingText::Match::kNo) return CallReader::Result::kNoCall;
  at += begin.size();
  const size_t end = text.find('>', at);
  const bool is_near = std::min(end, text.size()) <= kMaxCallHead;
  if (end == text.npos && is_near && !input.ended()) {
    return CallReader::Result::kMore;
  }
  if (end == text.npos || !is_near) return CallReader::Result::kNoCall;
  const std::string_view name = UnquotedName(text.substr(at, end - at));
  if (!IsCallName(name) || (known != nullptr && !known->Has(name))) {
    return CallReader::Result::kNoCall;
  }
  arguments.BeginCall(name, out);
  input.Consume(end + 1);
  return CallReader::Result::kDone;
}

std::string_view UnquotedName(std::string_view name) {
  name = TrimBlanks(name);
  if (name.size() < 2 || name.front() != '"') return name;
  const size_t end = name.find('"', 1);
  return end == name.npos ? name : name.substr(1, end - 1);
}

bool IsCallName(std::string_view name) {
  if (name.empty()) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == ':' || c == '/';
  });
}

}  // namespace sluice
