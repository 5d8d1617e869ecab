#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_COMPLETION_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_COMPLETION_H_

#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/dialects/llamacpp/parse.h"
#include "common/http/message.h"
#include "common/serving/context.h"
#include "common/serving/prepared_request.h"

namespace sluice::llamacpp {

// Returns the request for the engine. `prompts`: the tokens of each prompt.
// INVALID_ARGUMENT names the field; NOT_FOUND for another model.
StatusOr<serving::PreparedRequest> Prepare(
    const serving::ServingContext& context, const http::HttpRequest& http,
    std::string_view path, const CompletionBody& body,
    std::vector<std::vector<TokenId>> prompts);

// INVALID_ARGUMENT for texts of `bytes` together that are too long for the
// context, or to tokenize.
Status CheckTextBytes(const serving::ServingContext& context,
                      const serving::GenerationFields& fields, size_t bytes);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_COMPLETION_H_
