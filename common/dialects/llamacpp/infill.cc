#include "common/serving/infill.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/dialects/llamacpp/completion.h"
#include "common/dialects/llamacpp/handlers.h"
#include "common/dialects/llamacpp/parse.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"

namespace sluice::llamacpp {
namespace {

StatusOr<serving::PreparedRequest> PrepareInfill(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  const serving::ServedModel& model = context.model;
  const serving::ModelText& text = *model.text;
  SLUICE_ASSIGN_OR_RETURN(
      CompletionBody body,
      ParseInfill(http.body, text, model.vocab_size, context.strict_fields));
  SLUICE_ASSIGN_OR_RETURN(const serving::InfillTokens tokens,
                          serving::FindInfillTokens(model, "input_prefix"));
  SLUICE_RETURN_IF_ERROR(
      CheckTextBytes(context, body.fields, body.infill.bytes()));
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                          serving::EncodeInfill(text, tokens, body.infill));
  if (!body.fields.ignore_eos) body.fields.stop_token_ids = tokens.ends;
  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(prompt));
  return Prepare(context, http, kInfillPath, body, std::move(prompts));
}

}  // namespace

void RunInfill(const serving::ServingContext& context,
               std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareInfill, std::move(exchange));
}

}  // namespace sluice::llamacpp
