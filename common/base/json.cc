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
// And in bytes of keys: a comparison of keys of one length that differ at their
// end looks at all of them.
constexpr size_t kMaxComparedBytes = 32 * kMaxKeyComparisons;

// What comparing all keys of a text with one another takes.
class KeyComparisons {
 public:
  // The `count`th key of an object, of so many bytes, ends ahead of byte `at`.
  Status Add(size_t count, size_t key_bytes, size_t at) {
    if (count > kMaxMembers) {
      return InvalidArgument("JSON object with more than ", kMaxMembers,
                             " members at byte ", at);
    }
    number_ += count;
    if (number_ > kMaxKeyComparisons) {
      return InvalidArgument("JSON with too many large objects at byte ", at,
                             ": more than ", kMaxKeyComparisons,
                             " comparisons of their keys");
    }
    bytes_ += count * key_bytes;
    if (bytes_ > kMaxComparedBytes) {
      return InvalidArgument("JSON with too many long keys at byte ", at,
                             ": more than ", kMaxComparedBytes,
                             " bytes in comparisons of them");
    }
    return OkStatus();
  }

 private:
  size_t number_ = 0;
  size_t bytes_ = 0;
};

// An error where `text` nests deeper or an object has more members than the
// limits say. Runs before the parser, so that depth costs no stack.
Status CheckShape(std::string_view text, const JsonLimits& limits) {
  int depth = 0;
  bool in_string = false;
  std::vector<size_t> members(1);  // by depth, of the objects that are open
  KeyComparisons comparisons;
  size_t key_begin = 0;  // of the latest string
  size_t key_end = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
        key_end = i;
      }
    } else if (c == '"') {
      in_string = true;
      key_begin = i + 1;
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
      SLUICE_RETURN_IF_ERROR(comparisons.Add(count, key_end - key_begin, i));
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
