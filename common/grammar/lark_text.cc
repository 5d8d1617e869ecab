#include "common/grammar/lark_text.h"

#include "absl/strings/ascii.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/text/output/markup_tags.h"

namespace sluice {

std::string LarkLiteral(std::string_view text) {
  return Json(std::string(text)).dump();
}

std::string EscapedRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !absl::ascii_isalnum(byte) && c != ' ') {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

std::string WithEscapedSlashes(std::string_view regex) {
  std::string out;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\' && i + 1 < regex.size()) {
      out += regex[i++];
    } else if (regex[i] == '/') {
      out += '\\';
    } else if (regex[i] == '\n') {
      out += "\\n";
      continue;
    }
    out += regex[i];
  }
  return out;
}

bool IsSpecialTag(std::string_view tag, const Vocabulary& vocabulary) {
  const auto id = vocabulary.Find(tag);
  return id && vocabulary.IsSpecial(*id);
}

bool BeginsSpecial(std::string_view tag, const Vocabulary& vocabulary) {
  return IsSpecialTag(tag, vocabulary) ||
         (tag.starts_with(kMiniMaxMark) &&
          IsSpecialTag(kMiniMaxMark, vocabulary));
}

std::string LarkTag(std::string_view tag, const Vocabulary& vocabulary) {
  if (!BeginsSpecial(tag, vocabulary)) return LarkLiteral(tag);
  const auto id = vocabulary.Find(tag);
  if (id) return "<[" + std::to_string(*id) + "]>";
  return Cat(LarkTag(kMiniMaxMark, vocabulary), " ",
             LarkLiteral(tag.substr(kMiniMaxMark.size())));
}

std::string LarkTextUntil(const std::string& name, std::string_view end,
                          std::span<const std::string_view> never,
                          const Vocabulary& vocabulary,
                          const std::string& terminal) {
  std::string spelled;
  for (const std::string_view text : never) {
    spelled += Cat(spelled.empty() ? "" : "|", EscapedRegex(text));
  }
  const std::string text_name = Cat(absl::AsciiStrToUpper(name), "_TEXT");
  if (!never.empty()) spelled = Cat(" & ~/(?s:.*)(", spelled, ")(?s:.*)/");
  const std::string text = Cat(text_name, ": ", terminal, spelled, "\n");
  if (BeginsSpecial(end, vocabulary)) {
    return Cat(text, name, ": ", text_name, " ", LarkTag(end, vocabulary),
               "\n");
  }
  return Cat(text, name, "[suffix=", LarkLiteral(end), "]: ", text_name, "\n");
}

}  // namespace sluice
