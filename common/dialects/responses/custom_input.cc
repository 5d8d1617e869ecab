#include "common/dialects/responses/custom_input.h"

#include <algorithm>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/responses/tool_fields.h"

namespace sluice::responses {
namespace {

// The bytes of arguments within which the text begins, or there is none.
constexpr size_t kMaxBefore = 256;
// The bytes of \uXXXX.
constexpr size_t kEscapeBytes = 6;

// Whether `escape`, \uXXXX, is a half of a pair with a third digit of `kinds`.
bool IsSurrogate(std::string_view escape, std::string_view kinds) {
  return (escape[2] == 'd' || escape[2] == 'D') &&
         kinds.find(escape[3]) != kinds.npos;
}

// Whether `text`, the beginning of what follows a high surrogate, is or may
// become its other half.
bool MayBeLowSurrogate(std::string_view text) {
  return std::string_view("\\u").starts_with(text.substr(0, 2)) &&
         (text.size() < 3 || text[2] == 'd' || text[2] == 'D') &&
         (text.size() < 4 || IsSurrogate(text, "cdefCDEF"));
}

}  // namespace

std::string CustomInput::Next(std::string_view arguments, size_t bytes) {
  const size_t told = arguments.size() - bytes;
  std::string added;
  // A piece of the text belongs to the event whose bytes complete it.
  for (const std::string_view text : {arguments.substr(0, told), arguments}) {
    added.clear();
    if (place_ == Place::kBefore) FindText(text.substr(0, kMaxBefore));
    while (place_ == Place::kWithin && ReadChar(text, added)) {
    }
    if (place_ == Place::kRaw) {
      added += text.substr(at_);
      at_ = text.size();
    }
  }
  return added;
}

void CustomInput::FindText(std::string_view arguments) {
  const std::string name = Cat('"', kCustomInput, '"');
  size_t at = 0;
  bool is_other = arguments.size() == kMaxBefore;
  const auto takes = [&](std::string_view expected) {
    at = std::min(arguments.find_first_not_of(" \t\r\n", at), arguments.size());
    const std::string_view rest = arguments.substr(at, expected.size());
    is_other = is_other || !expected.starts_with(rest);
    at += rest.size();
    return rest == expected;
  };
  if (!takes("{") || !takes(name) || !takes(":") || !takes("\"")) {
    if (is_other) place_ = Place::kRaw;
    return;
  }
  at_ = at;
  place_ = Place::kWithin;
}

bool CustomInput::ReadChar(std::string_view arguments, std::string& out) {
  if (at_ == arguments.size()) return false;
  const std::string_view rest = arguments.substr(at_);
  if (rest[0] == '"') {
    place_ = Place::kBehind;
    return false;
  }
  if (rest[0] != '\\') {
    const size_t end = rest.find_first_of("\"\\");
    const std::string_view plain = rest.substr(0, end);
    out += plain;
    at_ += plain.size();
    return true;
  }
  if (rest.size() < 2) return false;
  size_t size = rest[1] == 'u' ? kEscapeBytes : 2;
  if (rest.size() < size) return false;
  if (size == kEscapeBytes && IsSurrogate(rest, "89abAB") &&
      MayBeLowSurrogate(rest.substr(size))) {
    size += kEscapeBytes;  // the other half
    if (rest.size() < size) return false;
  }
  const auto read = ParseJson(Cat('"', rest.substr(0, size), '"'));
  out += read.ok() ? read->get<std::string>() : "\xEF\xBF\xBD";
  at_ += size;
  return true;
}

}  // namespace sluice::responses
