#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_FIELDS_H_

#include <optional>
#include <span>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::ollama {

enum class FieldUse {
  kBuilt,    // read, checked and obeyed
  kIgnored,  // accepted with any value, without effect
  kUnbuilt,  // accepted with the value that changes nothing, else refused
};

// Where a field is: bits. An option is a member of `options`.
enum FieldPlace { kChat = 1, kGenerate = 2, kBoth = 3, kOption = 4 };

struct KnownField {
  std::string_view name;
  FieldPlace place = kBoth;
  FieldUse use = FieldUse::kBuilt;
  // Of kUnbuilt: a JSON array of the values, besides null, that change nothing.
  std::string_view neutral = {};
};

// Returns what the reader knows. services/gateway/OLLAMA.md has a row for each.
std::span<const KnownField> KnownFields();

// INVALID_ARGUMENT names the first field, or option, of `body` that is known at
// `place`, not built and has a value that would change the answer; with
// `strict` also the first that is not known.
Status CheckFields(const Json& body, FieldPlace place, bool strict);

// Read what chat and generate share; errors stay in `in`.
serving::GenerationFields ReadFields(serving::FieldReader& in,
                                     const serving::FieldNames& names);
// Sets the template's variables as `think` asks for.
void ReadThink(serving::FieldReader& in, Json& arguments);
// Returns whether keep_alive tells to unload the model at once.
bool ReadUnloads(serving::FieldReader& in);
serving::ToolFields ReadTools(serving::FieldReader& in);

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_FIELDS_H_
