#include "common/base/json.h"

#include <exception>

namespace sluice {
namespace {

// Deepest nesting of `text`, or an error where it passes `max_depth`. Runs
// before the parser, so that depth costs no stack.
Status CheckDepth(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
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
      if (++depth > max_depth) {
        return InvalidArgument("JSON nested deeper than ", max_depth,
                               " levels at byte ", i);
      }
    } else if (c == '}' || c == ']') {
      --depth;
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
  SLUICE_RETURN_IF_ERROR(CheckDepth(text, limits.max_depth));
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return InvalidArgument("malformed JSON at byte ", error.byte);
  } catch (const std::exception& error) {
    // Numbers out of range arrive here.
    return InvalidArgument("malformed JSON: ", error.what());
  }
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
