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

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_MODELS_H_
