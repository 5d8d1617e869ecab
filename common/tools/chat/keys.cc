#include "common/tools/chat/keys.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::chat {
namespace {

using Kind = Key::Kind;

constexpr size_t kMaxSequenceBytes = 32;
constexpr std::string_view kPasteEnd = "\x1b[201~";

struct Named {
  std::string_view bytes;
  Kind kind;
};

constexpr Named kControls[] = {
    {"\x01", Kind::kLineBegin},      {"\x02", Kind::kLeft},
    {"\x03", Kind::kInterrupt},      {"\x04", Kind::kDeleteOrEnd},
    {"\x05", Kind::kLineEnd},        {"\x06", Kind::kRight},
    {"\x08", Kind::kBackspace},      {"\x0a", Kind::kEnter},
    {"\x0b", Kind::kEraseToLineEnd}, {"\x0c", Kind::kClear},
    {"\x0d", Kind::kEnter},          {"\x0e", Kind::kNewer},
    {"\x10", Kind::kOlder},          {"\x15", Kind::kEraseToLineBegin},
    {"\x17", Kind::kEraseWord},      {"\x19", Kind::kYank},
    {"\x1a", Kind::kSuspend},        {"\x7f", Kind::kBackspace},
};
// Behind Escape.
constexpr Named kAlts[] = {
    {"\r", Kind::kNewLine},     {"\n", Kind::kNewLine},
    {"b", Kind::kWordLeft},     {"f", Kind::kWordRight},
    {"\x7f", Kind::kEraseWord}, {"\x08", Kind::kEraseWord},
};
// Behind Escape and [ or O, as xterm, the Linux console and rxvt send them.
constexpr Named kSequences[] = {
    {"A", Kind::kUp},          {"B", Kind::kDown},
    {"C", Kind::kRight},       {"D", Kind::kLeft},
    {"H", Kind::kLineBegin},   {"F", Kind::kLineEnd},
    {"1~", Kind::kLineBegin},  {"4~", Kind::kLineEnd},
    {"7~", Kind::kLineBegin},  {"8~", Kind::kLineEnd},
    {"3~", Kind::kDelete},     {"5~", Kind::kOlder},
    {"6~", Kind::kNewer},      {"1;5C", Kind::kWordRight},
    {"1;5D", Kind::kWordLeft}, {"1;3C", Kind::kWordRight},
    {"1;3D", Kind::kWordLeft}, {"13;2u", Kind::kNewLine},
    {"13;3u", Kind::kNewLine}, {"27;2;13~", Kind::kNewLine},
};

template <size_t N>
const Named* Find(const Named (&table)[N], std::string_view bytes) {
  const Named* found =
      std::find_if(std::begin(table), std::end(table),
                   [&](const Named& named) { return named.bytes == bytes; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

std::vector<Key> KeyReader::Feed(std::string_view bytes) {
  for (const char byte : bytes) Byte(byte);
  return std::exchange(keys_, {});
}

void KeyReader::Add(Kind kind, std::string text) {
  keys_.push_back({kind, std::move(text)});
}

void KeyReader::Byte(char byte) {
  switch (place_) {
    case Place::kPlain:
      return Plain(byte);
    case Place::kEscape:
      return Escape(byte);
    case Place::kSequence:
      return Sequence(byte);
    case Place::kPaste:
      return Paste(byte);
  }
}

void KeyReader::Plain(char byte) {
  if (byte == '\x1b') {
    place_ = Place::kEscape;
  } else if (const Named* named = Find(kControls, {&byte, 1})) {
    Add(named->kind);
  } else if (byte == '\t' || static_cast<unsigned char>(byte) >= 0x20) {
    std::string text = characters_.Push({&byte, 1});
    if (!text.empty()) Add(Kind::kText, std::move(text));
  }
}

void KeyReader::Escape(char byte) {
  place_ = Place::kPlain;
  if (byte == '[' || byte == 'O') {
    place_ = Place::kSequence;
    held_.clear();
  } else if (byte == '\x1b') {
    place_ = Place::kEscape;
  } else if (const Named* named = Find(kAlts, {&byte, 1})) {
    Add(named->kind);
  }
}

void KeyReader::Sequence(char byte) {
  held_ += byte;
  const bool ends = byte >= '@' && byte <= '~';
  if (!ends && held_.size() < kMaxSequenceBytes) return;
  place_ = Place::kPlain;
  const std::string sequence = std::exchange(held_, {});
  if (sequence == "200~") {
    place_ = Place::kPaste;
  } else if (const Named* named = Find(kSequences, sequence)) {
    Add(named->kind);
  }
}

void KeyReader::Paste(char byte) {
  held_ += byte;
  if (byte != '~' || !held_.ends_with(kPasteEnd)) return;
  place_ = Place::kPlain;
  held_.resize(held_.size() - kPasteEnd.size());
  // A terminal sends its newlines as Enter does.
  std::string text;
  for (size_t at = 0; at < held_.size(); ++at) {
    if (held_[at] != '\r') {
      text += held_[at];
    } else if (held_.substr(at + 1, 1) != "\n") {
      text += '\n';
    }
  }
  held_.clear();
  Add(Kind::kPaste, std::move(text));
}

}  // namespace sluice::chat
