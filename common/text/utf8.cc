#include "common/text/utf8.h"

#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  int size = 0;        // 0: not a lead byte
  uint8_t low = 0x80;  // range of the second byte
  uint8_t high = 0xBF;
};

// Table 3-7 of the Unicode standard.
Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Unit NextUtf8(std::string_view bytes) {
  using Kind = Utf8Unit::Kind;
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {Kind::kCharacter, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.size == 0) return {Kind::kInvalid, 1};
  char32_t value = first & (0xFF >> (lead.size + 1));
  for (int i = 1; i < lead.size; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) {
      return {Kind::kIncomplete, bytes.size()};
    }
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) {
      return {Kind::kInvalid, static_cast<size_t>(i)};
    }
    value = (value << 6) | (byte & 0x3F);
  }
  return {Kind::kCharacter, static_cast<size_t>(lead.size), value};
}

size_t FirstInvalidUtf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Unit unit = NextUtf8(bytes.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.size;
  }
  return std::string_view::npos;
}

void AppendUtf8(char32_t value, std::string& out) {
  const auto push = [&out](char32_t byte) {
    out.push_back(static_cast<char>(byte));
  };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0 | (value >> 6));
    push(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    push(0xE0 | (value >> 12));
    push(0x80 | ((value >> 6) & 0x3F));
    push(0x80 | (value & 0x3F));
  } else {
    push(0xF0 | (value >> 18));
    push(0x80 | ((value >> 12) & 0x3F));
    push(0x80 | ((value >> 6) & 0x3F));
    push(0x80 | (value & 0x3F));
  }
}

std::string Utf8Lossy(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  text += stream.Finish();
  return text;
}

std::string Utf8Stream::Push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined.append(bytes);
    held_.clear();
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Unit unit = NextUtf8(bytes);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) {
      held_.assign(bytes);
      break;
    }
    out.append(unit.kind == Utf8Unit::Kind::kCharacter
                   ? bytes.substr(0, unit.size)
                   : kReplacement);
    bytes.remove_prefix(unit.size);
  }
  return out;
}

bool Utf8Stream::BreaksOff(std::string_view bytes) const {
  if (held_.empty() || bytes.empty()) return false;
  // What is held back could be completed: only new bytes end it.
  return NextUtf8(held_ + std::string(bytes.substr(0, 1))).size == held_.size();
}

std::string Utf8Stream::Finish() {
  if (held_.empty()) return "";
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace sluice
