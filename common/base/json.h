#ifndef SLUICE_COMMON_BASE_JSON_H_
#define SLUICE_COMMON_BASE_JSON_H_

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice {

// Key order is kept: chat templates and tool schemas are shown to the model
// in the order their author wrote them.
using Json = nlohmann::ordered_json;

// What the texts of one request may have together: a text within a text
// counts like the text that holds it.
struct JsonBudget {
  size_t values = size_t{2} << 20;  // that may still come
};

struct JsonLimits {
  size_t max_bytes = size_t{8} << 20;
  int max_depth = 64;
  size_t max_members = 8192;  // of one object
  size_t max_key_bytes = std::numeric_limits<size_t>::max();
  JsonBudget* budget = nullptr;  // null: only the limits above
};

// The part of ParseJson that takes neither memory nor stack: INVALID_ARGUMENT
// where `text` nests deeper, or has more members or values than the limits say.
// For a text that another parser reads.
Status CheckJsonShape(std::string_view text, const JsonLimits& limits);

// Parses RFC 8259 JSON; duplicate keys: the last one wins. INVALID_ARGUMENT
// with the byte offset for malformed text, invalid UTF-8, numbers outside
// double's range, nesting, members, keys, values or size over limits. Takes
// linear time, but for a sort of each object's keys. No throw but bad_alloc.
StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// An empty object with room for so many members. An object without room copies
// its members, values too, when it grows.
Json MakeObject(size_t members);

// Appends a member to `object`, which must not have one of that name: nothing
// is compared, where object[name] compares with all that are there.
void AppendMember(Json& object, std::string name, Json value);

// Bytes of the strings and keys of `value`, and 64 for each of its values:
// about what copies of it take.
size_t JsonBytes(const Json& value);

// Compact text of `value`. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_H_
