#include "common/model_config/layer_range.h"

#include <algorithm>
#include <charconv>

#include "common/base/cat.h"

namespace sluice {
namespace {

// Parses "first-last". Returns whether `text` is that.
bool ParseRange(std::string_view text, LayerRange& range) {
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.first);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != '-') {
    return false;
  }
  parsed = std::from_chars(parsed.ptr + 1, end, range.last);
  if (parsed.ec != std::errc() || parsed.ptr != end || range.first < 0 ||
      range.last < range.first || range.last == INT32_MAX) {
    return false;
  }
  ++range.last;
  return true;
}

}  // namespace

StatusOr<std::vector<LayerRange>> ParseLayerRanges(std::string_view text) {
  std::vector<LayerRange> ranges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    LayerRange& range = ranges.emplace_back();
    if (!ParseRange(one, range)) {
      return InvalidArgument("must be first-last, got '", one, "'");
    }
    if (ranges.size() > 1 && range.first != ranges[ranges.size() - 2].last) {
      return InvalidArgument("'", one, "' must begin at ",
                             ranges[ranges.size() - 2].last,
                             ", behind the range before it");
    }
    begin = end + 1;
  }
  return ranges;
}

std::string ToText(const std::vector<LayerRange>& ranges) {
  std::string text;
  for (const LayerRange& range : ranges) {
    text += Cat(text.empty() ? "" : ",", range.first, "-", range.last - 1);
  }
  return text;
}

}  // namespace sluice
