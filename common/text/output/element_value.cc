#include "common/text/output/element_value.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/text/output/event_writer.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

// Elements deeper than these are text. The text of each level is read once for
// it.
constexpr int kMaxElementDepth = 32;

struct Element {
  std::string_view name;
  std::string_view inside;
};

// Takes the text up to the tag that closes the element, and the tag, off
// `rest`.
std::string_view TakeInside(std::string_view& rest) {
  size_t depth = 0;
  size_t end = rest.find(kMiniMaxMark);
  for (; end != rest.npos; end = rest.find(kMiniMaxMark, end + 1)) {
    const auto behind = rest.substr(end + kMiniMaxMark.size());
    const bool closes = behind.starts_with("</");
    if (closes && depth == 0) break;
    if (closes) --depth;
    if (!closes && behind.starts_with("<")) ++depth;
  }
  const std::string_view inside = rest.substr(0, end);
  const size_t tag = end == rest.npos ? rest.size() : end + kMiniMaxMark.size();
  const size_t close = rest.find('>', tag);
  rest.remove_prefix(close == rest.npos ? rest.size() : close + 1);
  return inside;
}

std::vector<Element> ElementsIn(std::string_view rest) {
  std::vector<Element> elements;
  size_t mark = rest.find(kMiniMaxMark);
  while (mark != rest.npos) {
    rest.remove_prefix(mark + kMiniMaxMark.size());
    const size_t end = rest.find('>');
    if (rest.starts_with("<") && !rest.starts_with("</") && end != rest.npos) {
      const std::string_view name = TrimBlanks(rest.substr(1, end - 1));
      rest.remove_prefix(end + 1);
      elements.push_back({name, TakeInside(rest)});
    }
    mark = rest.find(kMiniMaxMark);
  }
  return elements;
}

bool IsArray(const std::vector<Element>& elements, unsigned types) {
  const bool has_array = (types & kArrayType) != 0;
  const bool has_object = (types & kObjectType) != 0;
  if (has_array != has_object) return has_array;
  return std::all_of(elements.begin(), elements.end(),
                     [](const Element& one) { return one.name == "item"; });
}

std::string InQuotes(std::string_view text) {
  std::string json = "\"";
  AppendJsonEscaped(text, json);
  return json + "\"";
}

std::string AsJson(std::string_view text, const SchemaPlace& place, int depth) {
  const ParameterType type = place.Type();
  const auto elements =
      depth < kMaxElementDepth ? ElementsIn(text) : std::vector<Element>();
  if (elements.empty()) {
    // The template writes empty lists and objects so.
    const unsigned types = type.types & ~static_cast<unsigned>(kNullType);
    if (IsBlank(text) && types == kArrayType) return "[]";
    if (IsBlank(text) && types == kObjectType) return "{}";
    return ValueAsJson(text, type);
  }
  const bool is_array = IsArray(elements, type.types);
  std::set<std::string_view> names;
  std::string json;
  for (const Element& element : elements) {
    if (!is_array && !names.insert(element.name).second) continue;
    json += json.empty() ? "" : ", ";
    if (!is_array) json += InQuotes(element.name) + ": ";
    json +=
        AsJson(element.inside,
               is_array ? place.Item() : place.Member(element.name), depth + 1);
  }
  return is_array ? "[" + json + "]" : "{" + json + "}";
}

}  // namespace

std::string ElementsAsJson(std::string_view text, const SchemaPlace& place) {
  return AsJson(text, place, 0);
}

}  // namespace sluice
