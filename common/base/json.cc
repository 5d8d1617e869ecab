#include "common/base/json.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace sluice {
namespace {

// Of one object. Json adds a key by comparing it with all before it, so
// without limits a few MB of keys would take minutes.
constexpr size_t kMaxMembers = 8192;
// Of all objects together, in such comparisons: two of the largest objects,
// some tenths of a second.
constexpr size_t kMaxKeyComparisons = kMaxMembers * kMaxMembers;

// An error where `text` nests deeper or an object has more members than the
// limits say. Runs before the parser, so that depth costs no stack.
Status CheckShape(std::string_view text, const JsonLimits& limits) {
  int depth = 0;
  bool in_string = false;
  std::vector<size_t> members(1);  // by depth, of the objects that are open
  size_t comparisons = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits.max_depth) {
        return InvalidArgument("JSON nested deeper than ", limits.max_depth,
                               " levels at byte ", i);
      }
      members.resize(static_cast<size_t>(std::max(depth, 0)));
      members.push_back(0);
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && depth > 0) {
      const size_t count = ++members[static_cast<size_t>(depth)];
      if (count > kMaxMembers) {
        return InvalidArgument("JSON object with more than ", kMaxMembers,
                               " members at byte ", i);
      }
      comparisons += count;
      if (comparisons > kMaxKeyComparisons) {
        return InvalidArgument("JSON with too many large objects at byte ", i,
                               ": more than ", kMaxKeyComparisons,
                               " comparisons of their keys");
      }
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidArgument("JSON of ", text.size(), " bytes, limit ",
                           limits.max_bytes);
  }
  SLUICE_RETURN_IF_ERROR(CheckShape(text, limits));
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return InvalidArgument("malformed JSON at byte ", error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    return InvalidArgument("malformed JSON: a number is out of double's range");
  } catch (const std::exception&) {
    return InvalidArgument("malformed JSON");
  }
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
