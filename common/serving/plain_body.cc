#include "common/serving/plain_body.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

namespace sluice::serving {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Takes a JSON text apart, as far as the places of its members need it. What it
// takes for a member is one wherever the text is JSON.
class Members {
 public:
  explicit Members(std::string_view text) : rest_(text) {}

  bool Take(char c) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Returns the bytes of a string between its quotes; nothing: there is none.
  std::optional<std::string_view> TakeString() {
    if (!Take('"')) return std::nullopt;
    const std::string_view begin = rest_;
    if (!SkipString()) return std::nullopt;
    return begin.substr(0, begin.size() - rest_.size() - 1);
  }
  // Returns the bytes of a value; nothing: it has no end.
  std::optional<std::string_view> TakeValue() {
    SkipSpace();
    const std::string_view begin = rest_;
    size_t depth = 0;
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      rest_.remove_prefix(1);
      if (c == '"' && !SkipString()) return std::nullopt;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
    }
    if (depth > 0 || begin.size() == rest_.size()) return std::nullopt;
    return begin.substr(0, begin.size() - rest_.size());
  }
  bool is_over() {
    SkipSpace();
    return rest_.empty();
  }

 private:
  void SkipSpace() {
    rest_.remove_prefix(
        std::min(rest_.find_first_not_of(kSpace), rest_.size()));
  }
  // To behind the closing quote: the first one with no backslash before it that
  // is not escaped itself.
  bool SkipString() {
    for (size_t at = rest_.find('"'); at != rest_.npos;
         at = rest_.find('"', at + 1)) {
      size_t begin = at;
      while (begin > 0 && rest_[begin - 1] == '\\') --begin;
      if ((at - begin) % 2 == 1) continue;
      rest_.remove_prefix(at + 1);
      return true;
    }
    return false;
  }

  std::string_view rest_;
};

bool IsPlainValue(std::string_view name, std::string_view value,
                  std::span<const PlainValue> values) {
  constexpr size_t kLongest = 64;
  if (value.size() > kLongest) return false;
  std::string dense(value);
  std::erase_if(dense, [](char c) { return kSpace.find(c) != kSpace.npos; });
  return dense == "null" ||
         std::ranges::any_of(values, [&](const PlainValue& plain) {
           return plain.name == name && plain.value == dense;
         });
}

}  // namespace

bool IsPlainBody(std::string_view body, std::span<const std::string_view> names,
                 std::span<const PlainValue> values) {
  if (body.empty()) return true;
  Members members(body);
  if (!members.Take('{')) return false;
  if (members.Take('}')) return members.is_over();
  do {
    const auto name = members.TakeString();
    if (!name || !members.Take(':')) return false;
    const auto value = members.TakeValue();
    if (!value) return false;
    if (!std::ranges::binary_search(names, *name) &&
        !IsPlainValue(*name, *value, values)) {
      return false;
    }
  } while (members.Take(','));
  return members.Take('}') && members.is_over();
}

}  // namespace sluice::serving
