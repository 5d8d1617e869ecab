// A model's answer on its way to a terminal. Whatever it is, a terminal obeys
// nothing of it but styles, and sees the same in any pieces. The first byte
// says how the text is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/text/utf8.h"
#include "common/tools/chat/markdown.h"

namespace sluice::chat {
namespace {

std::string Shown(std::string_view text, size_t size) {
  Markdown markdown(40);
  std::string out;
  while (!text.empty()) {
    out += markdown.Push(text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
  }
  return out + markdown.Finish();
}

// Returns each character behind the style it has. Stops at one that a terminal
// obeys.
std::string EachStyled(std::string_view shown) {
  std::string out, style = "\x1b[0m";
  while (!shown.empty()) {
    if (shown.starts_with("\x1b[0")) {
      const size_t end = shown.find_first_not_of("0123456789;", 2);
      SLUICE_CHECK(end != std::string_view::npos && shown[end] == 'm');
      style = shown.substr(0, end + 1);
      shown.remove_prefix(end + 1);
      continue;
    }
    const Utf8Unit unit = NextUtf8(shown);
    SLUICE_CHECK(unit.kind == Utf8Unit::Kind::kCharacter);
    SLUICE_CHECK(unit.value >= 0x20 || unit.value == '\n' ||
                 unit.value == '\t');
    SLUICE_CHECK(unit.value < 0x7F || unit.value >= 0xA0);
    out.append(style).append(shown.substr(0, unit.size));
    shown.remove_prefix(unit.size);
  }
  return out;
}

}  // namespace
}  // namespace sluice::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  const size_t cut = 1 + data[0] % 64;
  SLUICE_CHECK(sluice::chat::EachStyled(sluice::chat::Shown(text, cut)) ==
               sluice::chat::EachStyled(sluice::chat::Shown(text, size)));
  return 0;
}
