#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_MODELS_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_MODELS_H_

#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/dialects/ollama/parse.h"
#include "common/serving/context.h"
#include "common/serving/model_text.h"
#include "common/serving/served_model.h"

namespace sluice::ollama {

// NOT_FOUND unless the model is served under `name`: one of its names, or a
// name without a tag, or with "latest", that is one of its names but for their
// tags.
Status CheckName(const serving::ServedModel& model, std::string_view name);

// The bodies of /api/tags, /api/ps and /api/show.
Json TagsJson(const serving::ServedModel& model);
Json RunningJson(const serving::ServingContext& context);
Json ShownJson(const serving::ServingContext& context);

// Returns whether the vocabulary has the marks of a text with a hole.
bool CanInfill(const serving::ModelText& text);
// Returns the prompt after which the model fills what is between prompt and
// suffix. INVALID_ARGUMENT, about suffix, without such marks.
StatusOr<std::vector<TokenId>> EncodeInfill(const serving::ModelText& text,
                                            const OllamaRequest& request);

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_MODELS_H_
