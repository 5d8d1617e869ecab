#include "common/serving/request_body.h"

#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "common/serving/error.h"
#include "common/serving/request_limits.h"

namespace sluice::serving {
namespace {

bool IsWithin(std::string_view path, std::string_view field) {
  if (path.empty()) return true;  // anywhere
  return path.starts_with(field) &&
         (path.size() == field.size() || path[field.size()] == '.' ||
          path[field.size()] == '[');
}

// Gives the schema of `fields` the digits that it has in `body`. Returns
// whether it has them.
bool KeepDigits(std::string_view body, GenerationFields& fields) {
  if (fields.grammar->spec.kind != GrammarSpec::Kind::kJsonSchema) return false;
  const auto text = FindJsonText(body, fields.grammar->name);
  if (!text) return false;
  const StatusOr<Json> same = ParseJson(*text);
  if (!same.ok() || DumpJson(*same) != fields.grammar->spec.text) return false;
  fields.grammar->spec.text = std::string(*text);
  return true;
}

}  // namespace

StatusOr<Json> ParseBody(std::string_view body, JsonBudget& budget,
                         RoundedNumbers* rounded) {
  SLUICE_ASSIGN_OR_RETURN(Json json,
                          ParseJson(body, {.max_bytes = body.size(),
                                           .max_key_bytes = kMaxKeyBytes,
                                           .budget = &budget,
                                           .rounded = rounded}));
  if (!json.is_object()) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Describe(json));
  }
  return json;
}

Status RefuseOthers(const Json& body, std::span<const std::string_view> known) {
  constexpr size_t kMaxShownName = 64;
  size_t index = 0;
  for (const auto& item : body.items()) {
    ++index;
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) {
      continue;
    }
    return WithCode(FieldError(item.key().substr(0, kMaxShownName), "field ",
                               index, " of the body is not known here"),
                    "unknown_parameter");
  }
  return OkStatus();
}

void HoldRounded(std::string_view body, FieldReader& in,
                 const RoundedNumbers& rounded, GenerationFields& fields,
                 const ToolFields* tools) {
  constexpr size_t kMaxShown = 40;
  const bool is_kept =
      !rounded.empty() && fields.grammar && KeepDigits(body, fields);
  const auto is_held = [&](std::string_view path) {
    if (!is_kept && fields.grammar && IsWithin(path, fields.grammar->name)) {
      return true;
    }
    for (size_t i = 0; tools != nullptr && i < tools->strict.size(); ++i) {
      const bool is_strict = tools->strict[i].value_or(false);
      if (is_strict && IsWithin(path, Cat("tools[", i, "]"))) return true;
    }
    return false;
  };
  for (const RoundedNumber& number : rounded) {
    if (!is_held(number.path)) continue;
    const bool has_path = !number.path.empty();
    const std::string_view name =
        has_path ? std::string_view(number.path) : "schema";
    in.Refuse(name, "has a number of more digits than a double keeps: ",
              number.text.substr(0, kMaxShown),
              number.text.size() > kMaxShown ? ".." : "");
  }
}

}  // namespace sluice::serving
