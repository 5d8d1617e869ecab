#ifndef SLUICE_COMMON_BASE_JSON_H_
#define SLUICE_COMMON_BASE_JSON_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_values.h"
#include "common/base/status.h"

namespace sluice {

// Key order is kept: chat templates and tool schemas are shown to the model
// in the order their author wrote them.
using Json = nlohmann::ordered_json;

// Limits for the texts of one request together: a text within a text counts
// like the text around it.
struct JsonBudget {
  size_t values = size_t{2} << 20;  // left
};

// A number whose digits a double does not keep. Many of them are kept as one.
struct RoundedNumber {
  std::string path;  // as in "tools[0].function"; empty: anywhere
  std::string text;  // as written
};

struct JsonLimits {
  size_t max_bytes = size_t{8} << 20;
  int max_depth = 64;
  size_t max_members = 8192;  // of one object
  size_t max_key_bytes = std::numeric_limits<size_t>::max();
  JsonBudget* budget = nullptr;                   // null: only the limits above
  std::vector<RoundedNumber>* rounded = nullptr;  // null: not asked for
};

// The checks of ParseJson, without memory or stack, for a text that another
// parser reads: INVALID_ARGUMENT if `text` nests deeper, or has more members or
// values than `limits` allow.
Status CheckJsonShape(std::string_view text, const JsonLimits& limits);

// Parses RFC 8259 JSON; duplicate keys: the last one wins. INVALID_ARGUMENT
// with the byte offset for malformed text, invalid UTF-8, numbers outside
// double's range, nesting, members, keys, values or size over limits. Takes
// linear time, but for a sort of each object's keys. No throw but bad_alloc.
StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Parses RFC 8259 JSON of a model's file, of any size and number of members.
// INVALID_ARGUMENT for malformed text and deeper nesting. No throw but
// bad_alloc.
StatusOr<SortedJson> ParseSortedJson(std::string_view text, int max_depth = 64);

// Returns the text of the member at `path` ("a.b": of b of a) of `text`, an
// object that ParseJson takes; of members of one name the last. Nothing where
// there is none; a name that is spelled with escapes is not found.
std::optional<std::string_view> FindJsonText(std::string_view text,
                                             std::string_view path);

// Returns an empty object with room for `members`. An object without room
// copies its members, values too, when it grows.
Json MakeObject(size_t members);

// Appends a member to `object`, which must not have one of that name. Compares
// nothing, where object[name] compares with all members.
void AppendMember(Json& object, std::string name, Json value);

// Returns about the memory of a copy of `value`: the bytes of its strings and
// keys, and 64 for each of its values.
size_t JsonBytes(const Json& value);

// Returns the compact text of `value`. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_H_
