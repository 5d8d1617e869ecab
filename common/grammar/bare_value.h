#ifndef SLUICE_COMMON_GRAMMAR_BARE_VALUE_H_
#define SLUICE_COMMON_GRAMMAR_BARE_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/grammar/grammar_texts.h"
#include "common/text/output/parameter_types.h"

namespace sluice {

// A parameter's values as they stand between tags: a string without quotes, any
// other value as JSON.
struct BareValue {
  // Either a text: the terminal of a Lark grammar, without the tags that no
  // text may spell. `counted`: the most characters that the terminal counts.
  std::string text = {};
  uint64_t counted = 0;
  // Or one of these texts, or a value of one of these schemas.
  std::vector<std::string> literals = {};
  std::vector<Json> schemas = {};
};

// The terminal of any text.
inline constexpr char kAnyBareText[] = "/(?s:.*)/";

// Returns the bare values of `property`, a schema at `path` in `root` whose
// values may be strings. Each value that the result lets through fits the
// schema once it is read back as one of `type`. INVALID_ARGUMENT names the
// keyword of a schema that bare values cannot be held to.
StatusOr<BareValue> BareValueOf(const Json& root, const Json& property,
                                const std::string& path,
                                const ParameterType& type,
                                const GrammarTexts& compiler);

// Returns the definition that `reference`, a "$ref", names in `root`: a member
// of "$defs" or "definitions"; null where the reference leads elsewhere.
const Json* DefinitionOf(const Json& root, const std::string& reference);

// True for a keyword that says nothing of a value.
bool IsNote(const std::string& keyword);

// The error of a schema that a format of tagged calls cannot say.
Status CannotSay(const std::string& path, const std::string& what);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_BARE_VALUE_H_
