#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/openai/answer.h"
#include "services/gateway/openai/request.h"
#include "services/gateway/request_runner.h"

namespace sluice::gateway {

// From parsed fields to what the engine is asked: shared by the endpoints
// that generate. Pure functions; any thread.

// NOT_FOUND (model_not_found) unless `name` is empty or the served model's.
Status CheckModel(const ServedModel& model, std::string_view name);

// Positions one sequence may have: the generator's, else the model's.
int MaxContext(const HandlerContext& context);

struct LengthRules {
  std::string_view prompt_field;  // "messages" or "prompt"
  int64_t default_max_tokens;     // lowered to what the context leaves
};

// The engine's request for one prompt. INVALID_ARGUMENT
// (context_length_exceeded) if prompt or completion do not fit.
StatusOr<GenerateRequest> MakeGenerateRequest(const HandlerContext& context,
                                              const GenerationFields& fields,
                                              std::vector<TokenId> prompt,
                                              const LengthRules& rules);

// What stands on every answer; `prefix`: "chatcmpl-".
AnswerInfo MakeAnswerInfo(const ServedModel& model,
                          const GenerationFields& fields,
                          std::string_view prefix);

// Unix time in seconds.
int64_t UnixSeconds();

// Runs `prepare`, which gives a RunPlan, on the loop for small bodies and on
// the work queue for large ones, and then the plan or its error.
using Prepare = std::function<StatusOr<RunPlan>(std::string_view body)>;
void PrepareAndRun(const HandlerContext& context, Prepare prepare,
                   std::shared_ptr<Exchange> exchange);

// The same for an endpoint that answers with `answer(body)` at once.
using Answer = std::function<StatusOr<HttpResponse>(std::string_view body)>;
void AnswerOffLoop(const HandlerContext& context, Answer answer,
                   std::shared_ptr<Exchange> exchange);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_
