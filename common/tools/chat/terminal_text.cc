#include "common/tools/chat/terminal_text.h"

#include <locale.h>
#include <wchar.h>

#include "common/text/utf8.h"

namespace sluice::chat {
namespace {

bool IsControl(char32_t value) {
  if (value < 0x20) return value != '\n' && value != '\t';
  return value >= 0x7F && value < 0xA0;
}

}  // namespace

std::string WithoutControls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = NextUtf8(text);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) return out + "\uFFFD";
    if (unit.kind == Utf8Unit::Kind::kInvalid) {
      out += "\uFFFD";
    } else if (!IsControl(unit.value)) {
      out += text.substr(0, unit.size);
    }
    text.remove_prefix(unit.size);
  }
  return out;
}

int DisplayWidth(char32_t character) {
  if (character < 0x80) return character >= 0x20 && character != 0x7F ? 1 : 0;
  // The table of widths is the C library's, whatever the process' locale.
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  const int width = ::wcwidth(static_cast<wchar_t>(character));
  ::uselocale(before);
  return width < 0 ? 0 : width;
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Utf8Unit unit = NextUtf8(text);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) return width + 1;
    width +=
        unit.kind == Utf8Unit::Kind::kCharacter ? DisplayWidth(unit.value) : 1;
    text.remove_prefix(unit.size);
  }
  return width;
}

}  // namespace sluice::chat
