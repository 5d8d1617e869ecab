#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_FIELDS_H_

#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"
#include "common/serving/request_fields.h"

namespace sluice::ollama {

// Where a field is: bits. An option is a member of `options`.
enum FieldPlace { kChat = 1, kGenerate = 2, kBoth = 3, kOption = 4 };

// Returns what the reader knows. services/gateway/OLLAMA.md has a row for each.
serving::FieldTable KnownFields();

// INVALID_ARGUMENT as serving::CheckFields, for `body` and its options.
Status CheckFields(const Json& body, FieldPlace place, bool strict);

// As serving::Dialect::is_plain.
bool IsPlainBody(std::string_view body);

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
