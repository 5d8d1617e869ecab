#include "common/text/output/harmony_header.h"

#include <algorithm>

#include "common/text/output/event_writer.h"

namespace sluice {
namespace {

constexpr size_t kMaxHeader = 1024;
// Bytes of a character behind its first.
constexpr size_t kMaxTail = 3;
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kTo = "to=";

bool IsTail(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string_view TrimStart(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  return text;
}

// Returns the first word, taken off `text`.
std::string_view TakeWord(std::string_view& text) {
  text = TrimStart(text);
  size_t size = 0;
  while (size < text.size() && !IsBlank(text[size])) ++size;
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(size);
  return word;
}

// Returns the channel at the start of `text`; models add a question mark or so.
std::string_view ChannelOf(std::string_view text) {
  text = TrimStart(text);
  for (const std::string_view name : {"analysis", "commentary", "final"}) {
    if (text.starts_with(name)) return name;
  }
  return "";
}

std::string_view WithoutChannel(std::string_view text) {
  text = TrimStart(text);
  text.remove_prefix(ChannelOf(text).size());
  return text;
}

// Returns the word behind the last "to=" at the start of a word.
std::string_view RecipientOf(std::string_view text) {
  std::string_view recipient;
  while (!text.empty()) {
    const std::string_view word = TakeWord(text);
    if (word.starts_with(kTo)) recipient = word.substr(kTo.size());
  }
  return recipient;
}

}  // namespace

void HarmonyHeader::BeginChannel() {
  part_ = Part::kChannel;
  has_channel_ = true;
  channel_.clear();
}

std::string_view HarmonyHeader::Push(std::string_view text) {
  const size_t used = role_.size() + channel_.size() + type_.size();
  size_t size = std::min(text.size(), kMaxHeader - std::min(used, kMaxHeader));
  while (size < text.size() && used + size < kMaxHeader + kMaxTail &&
         IsTail(text[size])) {
    ++size;
  }
  full_ = full_ || size < text.size();
  if (part_ == Part::kRole) role_ += text.substr(0, size);
  if (part_ == Part::kChannel) channel_ += text.substr(0, size);
  if (part_ == Part::kType) type_ += text.substr(0, size);
  return text.substr(size);
}

bool HarmonyHeader::is_text() const {
  if (!is_bare()) return false;
  const std::string_view role = TrimStart(role_);
  for (const std::string_view start : {kTo, kAssistant}) {
    if (role.starts_with(start) || start.starts_with(role)) return false;
  }
  return true;
}

std::string_view HarmonyHeader::channel() const { return ChannelOf(channel_); }

std::string HarmonyHeader::recipient() const {
  const std::string_view own = RecipientOf(WithoutChannel(channel_));
  return std::string(own.empty() ? RecipientOf(role_) : own);
}

bool HarmonyHeader::from_assistant() const {
  const std::string_view role = TrimStart(role_);
  return role.empty() || role.starts_with(kAssistant) || role.starts_with(kTo);
}

std::string HarmonyHeader::rest() const {
  std::string all;
  if (has_channel_) {
    all = WithoutChannel(channel_);
  } else {
    std::string_view role = role_;
    const std::string_view word = TakeWord(role);
    all = word.starts_with(kAssistant) ? role : TrimStart(role_);
  }
  all += type_;
  std::string_view rest = TrimStart(all);
  if (rest.starts_with(kTo)) {
    TakeWord(rest);
    rest = TrimStart(rest);
  }
  for (const std::string_view type : {"json", "code"}) {
    if (has_channel_ && rest.starts_with(type)) {
      rest = TrimStart(rest.substr(type.size()));
    }
  }
  return std::string(rest);
}

}  // namespace sluice
