#ifndef SLUICE_COMMON_SERVING_PREPARE_H_
#define SLUICE_COMMON_SERVING_PREPARE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/step_trace.h"
#include "common/http/exchange.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/answer_start.h"
#include "common/serving/context.h"
#include "common/serving/request.h"
#include "common/serving/request_runner.h"
#include "common/serving/text_work.h"

namespace sluice::serving {

// From parsed fields to the engine's request: for the endpoints that generate.
// Pure functions; any thread.

// Returns whether the model is served under `name`.
bool Serves(const ServedModel& model, std::string_view name);

// NOT_FOUND (model_not_found) about `field` unless `name` is empty or served.
Status CheckModel(const ServedModel& model, std::string_view field,
                  std::string_view name);

// INVALID_ARGUMENT for more stop strings than the operator allows.
Status CheckStops(const ServingContext& context,
                  const GenerationFields& fields);

// Returns the times of the signs of life of a stream that answers `fields`.
http::EventStreamTimes StreamTimes(const ServingContext& context,
                                   const GenerationFields& fields);

// Returns the positions of one sequence: the engine's limit, else the model's.
int MaxContext(const ServingContext& context);

// Returns the most bytes of a prompt's text: a longer text has more tokens than
// the context. No limit for a truncated prompt, or without a bound of the
// tokenizer.
size_t MaxTextBytes(const ServingContext& context,
                    const GenerationFields& fields);

// Returns the most bytes of any one text to tokenize: --max-tokenize-bytes.
size_t MaxTokenizeBytes(const ServingContext& context);

// Returns context_length_exceeded about `bytes` of text above MaxTextBytes.
Status TextTooLong(const ServingContext& context,
                   const GenerationFields& fields, size_t bytes);

// Returns `prompt` cut by fields.truncate_prompt: its last tokens; -1 keeps as
// many as fit beside max_tokens (at least one). INVALID_ARGUMENT for more than
// the context.
StatusOr<std::vector<TokenId>> TruncatePrompt(const ServingContext& context,
                                              const GenerationFields& fields,
                                              std::vector<TokenId> prompt);

// Returns the engine's request for one prompt, without a seed. INVALID_ARGUMENT
// (context_length_exceeded) if prompt or completion do not fit; with
// cut_max_tokens the completion is cut to fit. `default_max_tokens` is lowered
// to the rest of the context.
StatusOr<GenerateRequest> MakeGenerateRequest(const ServingContext& context,
                                              const GenerationFields& fields,
                                              std::vector<TokenId> prompt,
                                              int64_t default_max_tokens);

// Checks the template's variables, `arguments` of `field`, and returns a header
// with those of the client's `names` of them that the template never reads; no
// header for none. INVALID_ARGUMENT for such a name if the server is strict.
StatusOr<http::HttpHeaders> CheckTemplateArguments(
    const ServingContext& context, std::string_view field,
    const Json& arguments, const std::vector<std::string>& names);

// The terms of the HTTP request: client and deadline, by X-Request-Timeout in
// seconds from its arrival.
struct RequestTerms {
  std::string id;  // unique, also if the client reuses its id
  std::string tenant;
  std::string client;  // the client whose share counts
  std::optional<TimePoint> deadline;
};
StatusOr<RequestTerms> ReadTerms(const http::HttpRequest& request);

// Adds the n choices of one prompt to `prepared`: copies of `first` with their
// own choice index.
void AddChoices(PreparedRequest& prepared, PreparedRequest::Choice first, int n,
                const RequestTerms& terms);

// Returns the options of a choice's text by `fields`, without echo.
ChoiceTextOptions MakeTextOptions(const GenerationFields& fields);

// Returns the members of every answer. Its id is `id_prefix` and the client's
// X-Request-Id, else the body's request_id, else ours.
AnswerInfo MakeAnswerInfo(const ServedModel& model,
                          const GenerationFields& fields,
                          const AnswerStart& start, std::string_view id_prefix);

// Returns the workers for the exchange's body and `more_bytes` of text beside
// it: none, so the loop, for little text if the model's text side is quick.
TextWorkers WorkersFor(const ServingContext& context, http::Exchange& exchange,
                       size_t more_bytes = 0);
// Returns the memory of that work.
size_t TextMemory(http::Exchange& exchange, size_t more_bytes = 0);

template <typename Made>
using Maker = StatusOr<Made> (*)(const ServingContext& context,
                                 const http::HttpRequest& request);

// Runs `make()`, which takes `bytes` of memory, as text work (see text_work.h).
// Then runs `use(exchange, what make returned, span of make)` on the exchange's
// loop, without the body. Called on that loop.
template <typename Make, typename Use>
void WorkThenUse(const TextWorkers& workers, size_t bytes, Make make, Use use,
                 std::shared_ptr<http::Exchange> exchange) {
  const std::thread::id loop = std::this_thread::get_id();
  auto work = [make = std::move(make), use = std::move(use), exchange, loop] {
    TraceSpan span{MonotonicNanos()};
    auto made = std::make_shared<decltype(make())>(make());
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

// The same with a `make` that reads the body, and `more_bytes` of text beside
// it, on the loop or as text work.
template <typename Made, typename Use>
void MakeThenUse(const ServingContext& context, Maker<Made> make, Use use,
                 std::shared_ptr<http::Exchange> exchange,
                 size_t more_bytes = 0) {
  const TextWorkers workers = WorkersFor(context, *exchange, more_bytes);
  const size_t bytes = TextMemory(*exchange, more_bytes);
  auto made = [context, make, exchange] {
    return make(context, exchange->request());
  };
  WorkThenUse(workers, bytes, std::move(made), std::move(use),
              std::move(exchange));
}

// Runs the request that `prepare` returns, or answers with its error. A grammar
// is compiled as text work of its own, never on the loop. `more_bytes`: of text
// that `prepare` reads beside the body.
void PrepareAndRun(const ServingContext& context,
                   Maker<PreparedRequest> prepare,
                   std::shared_ptr<http::Exchange> exchange,
                   size_t more_bytes = 0);

// Answers with the response or error that `answer` returns; `more_bytes`
// likewise.
void AnswerOffLoop(const ServingContext& context,
                   Maker<http::HttpResponse> answer,
                   std::shared_ptr<http::Exchange> exchange,
                   size_t more_bytes = 0);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_PREPARE_H_
