#include "common/text/output/python_literal.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "common/text/output/event_writer.h"
#include "common/text/utf8.h"

namespace sluice {
namespace {

// As deep as ParseJson reads.
constexpr int kMaxLiteralDepth = 64;
constexpr std::string_view kHex = "0123456789abcdefABCDEF";

std::optional<char32_t> HexOf(std::string_view digits) {
  if (digits.find_first_not_of(kHex) != digits.npos) return std::nullopt;
  uint32_t code = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  return static_cast<char32_t>(code);
}

bool IsOctal(char c) { return c >= '0' && c <= '7'; }

// Returns the first half of a character and the half in the escape behind it,
// joined, or the escape of the half alone.
PythonEscape ReadHalves(char32_t high, std::string_view text, size_t size,
                        bool is_whole) {
  constexpr size_t kSize = 6;  // of the other half
  PythonEscape escape{size, ""};
  const std::string_view other = text.substr(size, kSize);
  const bool may_follow =
      std::string_view("\\u").starts_with(other.substr(0, 2));
  char32_t code = 0xFFFD;
  if (may_follow && other.size() < kSize && !is_whole) return {};
  if (may_follow && other.size() == kSize) {
    const char32_t low = HexOf(other.substr(2)).value_or(0);
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
      escape.size += kSize;
    }
  }
  AppendUtf8(code, escape.text);
  return escape;
}

PythonEscape ReadOctal(std::string_view text, bool is_whole) {
  constexpr size_t kMaxDigits = 3;
  size_t size = 1;
  char32_t code = 0;
  while (size <= kMaxDigits && size < text.size() && IsOctal(text[size])) {
    code = code * 8 + static_cast<char32_t>(text[size++] - '0');
  }
  if (size <= kMaxDigits && size == text.size() && !is_whole) return {};
  PythonEscape escape{size, ""};
  AppendUtf8(code, escape.text);
  return escape;
}

// What closes a list, a tuple, a set or a dict.
char CloserOf(char open) { return open == '[' ? ']' : open == '(' ? ')' : '}'; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Reads one literal by recursive descent, up to a depth.
class LiteralReader {
 public:
  // `is_strict`: a string ends at the first quote without a backslash.
  LiteralReader(std::string_view text, bool is_strict)
      : text_(text), is_strict_(is_strict) {}

  std::optional<std::string> Read() {
    std::string json;
    if (!ReadValue(json, 0)) return std::nullopt;
    SkipBlanks();
    if (at_ < text_.size()) return std::nullopt;
    return json;
  }

 private:
  // Each Read function reads on from `at_` and appends JSON; false if no such
  // literal stands there.

  bool ReadValue(std::string& json, int depth) {
    SkipBlanks();
    const char c = Peek();
    if (c == '[' || c == '(' || c == '{') {
      if (depth == kMaxLiteralDepth) return false;
      ++at_;
      return c == '{' ? ReadBraces(json, depth + 1)
                      : ReadList(c, json, depth + 1);
    }
    if (BeginsString()) return ReadStrings(json);
    if (c == '-' || c == '+' || c == '.' || IsDigit(c)) return ReadNumber(json);
    return ReadWord(json);
  }

  // Behind the opening bracket. A value in parentheses without a comma is that
  // value.
  bool ReadList(char open, std::string& json, int depth) {
    std::string inside;
    bool has_comma = false;
    while (!Takes(CloserOf(open))) {
      if (!inside.empty() && !has_comma) return false;
      if (!inside.empty()) inside += ", ";
      if (!ReadValue(inside, depth)) return false;
      const bool comma = Takes(',');
      has_comma = has_comma || comma;
      if (!comma && Peek() != CloserOf(open)) return false;
    }
    const bool is_value = open == '(' && !inside.empty() && !has_comma;
    json += is_value ? inside : "[" + inside + "]";
    return true;
  }

  // Behind the opening brace of a dict or, without colons, a set.
  bool ReadBraces(std::string& json, int depth) {
    std::string inside;
    bool is_dict = true;
    while (!Takes('}')) {
      std::string key;
      if (!ReadValue(key, depth)) return false;
      const bool has_colon = Takes(':');
      if (inside.empty()) is_dict = has_colon;
      if (has_colon != is_dict) return false;
      if (!inside.empty()) inside += ", ";
      if (is_dict) {
        if (key.front() == '[' || key.front() == '{') return false;
        inside += key.front() == '"' ? key : "\"" + key + "\"";
        inside += ": ";
        if (!ReadValue(inside, depth)) return false;
      } else {
        inside += key;
      }
      if (!Takes(',') && Peek() != '}') return false;
    }
    json += is_dict ? "{" + inside + "}" : "[" + inside + "]";
    return true;
  }

  // Strings one behind the other are one.
  bool ReadStrings(std::string& json) {
    json += '"';
    while (BeginsString()) {
      if (!ReadString(json)) return false;
      SkipBlanks();
    }
    json += '"';
    return true;
  }

  bool ReadString(std::string& json) {
    const bool is_raw = !IsQuote(Peek()) && (Peek() == 'r' || Peek() == 'R');
    if (!IsQuote(Peek())) ++at_;
    const std::string quote(text_.substr(at_).starts_with("\"\"\"") ||
                                    text_.substr(at_).starts_with("'''")
                                ? 3
                                : 1,
                            Peek());
    at_ += quote.size();
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with(quote) &&
          (is_strict_ || EndsListedText(rest.substr(quote.size())))) {
        at_ += quote.size();
        return true;
      }
      if (rest.front() != '\\') {
        AppendJsonEscaped(rest.substr(0, 1), json);
        ++at_;
        continue;
      }
      const PythonEscape escape =
          is_raw ? PythonEscape{std::min<size_t>(2, rest.size()),
                                std::string(rest.substr(0, 2))}
                 : ReadPythonEscape(rest, /*is_whole=*/true);
      AppendJsonEscaped(escape.text, json);
      at_ += escape.size;
    }
    return false;
  }

  bool ReadNumber(std::string& json) {
    bool is_negative = false;
    while (Peek() == '-' || Peek() == '+') {
      is_negative = is_negative != (Peek() == '-');
      ++at_;
      SkipBlanks();
    }
    if (is_negative) json += '-';
    if (Peek() == '0' && at_ + 1 < text_.size()) {
      const char base = static_cast<char>(text_[at_ + 1] | 0x20);
      if (base == 'x') return ReadInteger(16, json);
      if (base == 'o') return ReadInteger(8, json);
      if (base == 'b') return ReadInteger(2, json);
    }
    std::string whole = TakeDigits();
    const bool has_point = Peek() == '.';
    if (has_point) ++at_;
    const std::string fraction = has_point ? TakeDigits() : "";
    if (whole.empty() && fraction.empty()) return false;
    whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
    json += whole.empty() ? "0" : whole;
    if (has_point) json += "." + (fraction.empty() ? "0" : fraction);
    if ((Peek() | 0x20) != 'e') return true;
    json += 'e';
    ++at_;
    if (Peek() == '-' || Peek() == '+') json += text_[at_++];
    const std::string exponent = TakeDigits();
    json += exponent;
    return !exponent.empty();
  }

  // Reads 0x1F and its like.
  bool ReadInteger(int base, std::string& json) {
    at_ += 2;
    const size_t begin = at_;
    std::string digits;
    while (kHex.find(Peek()) != kHex.npos || Peek() == '_') {
      if (Peek() != '_') digits += Peek();
      ++at_;
    }
    uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value, base);
    json += std::to_string(value);
    return at_ > begin && read.ec == std::errc() && read.ptr == end;
  }

  std::string TakeDigits() {
    std::string digits;
    while (IsDigit(Peek()) || (Peek() == '_' && !digits.empty())) {
      if (Peek() != '_') digits += Peek();
      ++at_;
    }
    return digits;
  }

  bool ReadWord(std::string& json) {
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"},
        {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (const auto& [word, meant] : kWords) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      json += meant;
      return true;
    }
    return false;
  }

  // Returns whether a quote, perhaps behind the letter of a raw or a Unicode
  // string, stands here.
  bool BeginsString() const {
    constexpr std::string_view kPrefixes = "rRuU";
    const size_t prefix = kPrefixes.find(Peek()) != kPrefixes.npos ? 1 : 0;
    return at_ + prefix < text_.size() && IsQuote(text_[at_ + prefix]);
  }

  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  // Takes white space and then `c`, if it stands there.
  bool Takes(char c) {
    SkipBlanks();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  const std::string_view text_;
  const bool is_strict_;
  size_t at_ = 0;
};

}  // namespace

PythonEscape ReadPythonEscape(std::string_view text, bool is_whole) {
  constexpr std::string_view kLetters = "nrtbfav'\"\\";
  constexpr std::string_view kMeant = "\n\r\t\b\f\a\v'\"\\";
  if (text.size() < 2) return {is_whole ? text.size() : 0, std::string(text)};
  const char c = text[1];
  if (c == '\n') return {2, ""};  // the line goes on
  if (IsOctal(c)) return ReadOctal(text, is_whole);
  const size_t letter = kLetters.find(c);
  if (letter != kLetters.npos) return {2, std::string(1, kMeant[letter])};
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  const PythonEscape none{1, "\\"};  // Python keeps the backslash
  if (digits == 0) return none;
  const std::string_view written = text.substr(2, digits);
  const auto code = HexOf(written);
  if (!code) return none;
  const size_t size = 2 + digits;
  if (text.size() < size) return is_whole ? none : PythonEscape{};
  if (*code >= 0xD800 && *code < 0xDC00) {
    return ReadHalves(*code, text, size, is_whole);
  }
  PythonEscape escape{size, ""};
  const bool is_half = *code >= 0xDC00 && *code < 0xE000;
  AppendUtf8(is_half || *code > 0x10FFFF ? 0xFFFD : *code, escape.text);
  return escape;
}

std::optional<std::string> PythonLiteralAsJson(std::string_view text) {
  auto json = LiteralReader(text, /*is_strict=*/true).Read();
  if (!json) json = LiteralReader(text, /*is_strict=*/false).Read();
  return json;
}

bool EndsListedText(std::string_view behind) {
  constexpr std::string_view kEnds = ",:]})";
  behind = TrimBlanks(behind);
  return behind.empty() || kEnds.find(behind.front()) != kEnds.npos;
}

}  // namespace sluice
