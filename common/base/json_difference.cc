#include "common/base/json_difference.h"

#include <set>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice {
namespace {

constexpr size_t kMostNamed = 5;
constexpr size_t kMostText = 120;

// Returns null for a text that is no JSON.
SortedJson Parse(std::string_view text) {
  auto json = ParseSortedJson(text);
  return json.ok() ? *std::move(json) : SortedJson();
}

// The value's text, cut.
std::string TextAt(const SortedJson& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) return "absent";
  return found
      ->dump(-1, ' ', /*ensure_ascii=*/true,
             SortedJson::error_handler_t::replace)
      .substr(0, kMostText);
}

}  // namespace

std::string DifferenceOfObjects(std::string_view here, std::string_view there) {
  const SortedJson own = Parse(here), other = Parse(there);
  if (!own.is_object() || !other.is_object()) return "";
  std::set<std::string> keys;
  for (const SortedJson* object : {&own, &other}) {
    for (const auto& [key, value] : object->items()) keys.insert(key);
  }
  std::string text;
  size_t named = 0;
  for (const std::string& key : keys) {
    const bool same =
        own.contains(key) && other.contains(key) && own[key] == other[key];
    if (same || ++named > kMostNamed) continue;
    text += Cat(text.empty() ? "" : "; ", key, " is ", TextAt(own, key),
                " here and ", TextAt(other, key), " there");
  }
  return text;
}

}  // namespace sluice
