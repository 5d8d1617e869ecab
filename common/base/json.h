#ifndef SLUICE_COMMON_BASE_JSON_H_
#define SLUICE_COMMON_BASE_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice {

// Key order is kept: chat templates and tool schemas are shown to the model
// in the order their author wrote them.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = size_t{8} << 20;
  int max_depth = 64;
};

// Parses RFC 8259 JSON; duplicate keys: the last one wins. INVALID_ARGUMENT
// with the byte offset for malformed text, invalid UTF-8, numbers outside
// double's range, nesting or size over limits, more than 8192 keys in an
// object, and for objects that are costly together: their keys' counts squared
// may add up to 2 * 8192^2, the same with their keys' bytes to 32 times that.
// No throw.
StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Compact text of `value`. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_H_
