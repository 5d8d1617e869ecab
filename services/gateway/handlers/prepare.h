#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/step_trace.h"
#include "common/http/exchange.h"
#include "common/openai/answer.h"
#include "common/openai/request.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/request_runner.h"
#include "services/gateway/text_work.h"

namespace sluice::gateway {

// From parsed fields to what the engine is asked: shared by the endpoints
// that generate. Pure functions; any thread.

// Whether the model is served under this very name.
bool Serves(const ServedModel& model, std::string_view name);

// NOT_FOUND (model_not_found) unless `name` is empty or one that requests may
// give.
Status CheckModel(const ServedModel& model, std::string_view name);

// INVALID_ARGUMENT for more stop strings than the operator allows.
Status CheckStops(const HandlerContext& context,
                  const openai::GenerationFields& fields);

// When a stream that answers `fields` shows that it is alive.
http::EventStreamTimes StreamTimes(const HandlerContext& context,
                                   const openai::GenerationFields& fields);

// Positions one sequence may have: the engine's, else the model's.
int MaxContext(const HandlerContext& context);

struct LengthRules {
  std::string_view prompt_field;  // "messages" or "prompt"
  int64_t default_max_tokens;     // lowered to what the context leaves
};

// Bytes that a prompt's text may have: beyond, it has more tokens than the
// context, whatever they are. No limit if the prompt is truncated, or if the
// tokenizer has no such bound.
size_t MaxTextBytes(const HandlerContext& context,
                    const openai::GenerationFields& fields);

// Bytes that any one text may have which is tokenized: --max-tokenize-bytes.
size_t MaxTokenizeBytes(const HandlerContext& context);

// context_length_exceeded about `bytes` of text, more than MaxTextBytes.
Status TextTooLong(const HandlerContext& context, std::string_view field,
                   size_t bytes);

// `prompt` with truncate_prompt_tokens obeyed: its last tokens, with -1 as
// many as fit beside max_tokens (at least one). INVALID_ARGUMENT if more are
// asked for than the context has.
StatusOr<std::vector<TokenId>> TruncatePrompt(
    const HandlerContext& context, const openai::GenerationFields& fields,
    std::vector<TokenId> prompt);

// The engine's request for one prompt. INVALID_ARGUMENT
// (context_length_exceeded) if prompt or completion do not fit; by the
// operator's choice max_tokens is cut to fit.
StatusOr<GenerateRequest> MakeGenerateRequest(
    const HandlerContext& context, const openai::GenerationFields& fields,
    std::vector<TokenId> prompt, const LengthRules& rules);

// What the HTTP request itself says: whose it is, and its deadline by
// X-Request-Timeout, in seconds from its arrival.
struct RequestTerms {
  std::string id;  // of this request alone, also if the client reuses its own
  std::string tenant;
  std::string client;  // whose share it counts against
  std::optional<TimePoint> deadline;
};
StatusOr<RequestTerms> ReadTerms(const http::HttpRequest& request);

// Adds the n choices of one prompt to `plan`: copies of `first`, which differ
// in their choice index.
void AddChoices(PreparedRequest& prepared, PreparedRequest::Choice first, int n,
                const RequestTerms& terms);

// How a choice's tokens become text, by `fields`; without echo.
openai::ChoiceTextOptions MakeTextOptions(
    const openai::GenerationFields& fields);

// What stands on every answer; `prefix`: "chatcmpl-". Its id is the client's
// X-Request-Id, else the body's request_id, else ours, behind the prefix.
openai::AnswerInfo MakeAnswerInfo(const ServedModel& model,
                                  const openai::GenerationFields& fields,
                                  const http::HttpRequest& request,
                                  std::string_view prefix);

// What the ids of one request's tool calls begin with: "call_", 16
// hexadecimal digits that no other request has, "_".
std::string NewCallIds();

// Unix time in seconds.
int64_t UnixSeconds();

// The workers for what is made of the exchange's body: none for small bodies,
// if the model's text side is quick, which are read on the loop.
TextWorkers WorkersFor(const HandlerContext& context, http::Exchange& exchange);
// Memory that this takes.
size_t TextMemory(http::Exchange& exchange);

template <typename Made>
using Maker = StatusOr<Made> (*)(const HandlerContext& context,
                                 const http::HttpRequest& request);

// Runs `make`, which reads the body, on the loop or as text work (see
// text_work.h), and then `use(exchange, StatusOr<Made>, span of make)` on the
// exchange's loop, without the body.
template <typename Made, typename Use>
void MakeThenUse(const HandlerContext& context, Maker<Made> make, Use use,
                 std::shared_ptr<http::Exchange> exchange) {
  const std::thread::id loop = std::this_thread::get_id();
  const TextWorkers workers = WorkersFor(context, *exchange);
  const size_t bytes = TextMemory(*exchange);
  auto work = [context, make, use = std::move(use), exchange, loop] {
    TraceSpan span{MonotonicNanos()};
    auto made =
        std::make_shared<StatusOr<Made>>(make(context, exchange->request()));
    span.stop_ns = MonotonicNanos();
    auto go_on = [made, use, exchange, span] {
      exchange->ReleaseBody();
      use(exchange, std::move(*made), span);
    };
    if (std::this_thread::get_id() == loop) return go_on();
    http::Exchange& on_exchange = *exchange;
    on_exchange.Post(std::move(go_on));
  };
  RunTextWork(workers, exchange, bytes, std::move(work));
}

// Runs the request that `prepare` makes ready, or answers with its error.
void PrepareAndRun(const HandlerContext& context,
                   Maker<PreparedRequest> prepare,
                   std::shared_ptr<http::Exchange> exchange);

// Answers with what `answer` makes.
void AnswerOffLoop(const HandlerContext& context,
                   Maker<http::HttpResponse> answer,
                   std::shared_ptr<http::Exchange> exchange);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_PREPARE_H_
