#include "common/serving/embeddings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/retry_after.h"
#include "common/engine/engine_loop.h"
#include "common/serving/error.h"
#include "common/serving/numbers.h"
#include "common/serving/pooling.h"
#include "common/serving/prepare.h"
#include "common/serving/request_metrics.h"
#include "common/serving/served_model.h"
#include "common/serving/text_work.h"

namespace sluice::serving {
namespace {

// Inputs of a request that the engine has at once: enough to fill its steps,
// and no more of its queue than a client's other requests take.
constexpr size_t kMostAtOnce = 32;

// A parsed request with its prompts.
struct Prepared {
  std::vector<GenerateRequest> requests;
  size_t dimensions = 0;
  std::function<http::HttpResponse(const Embeddings&)> write;
};

Status CheckModelEmbeds(const ServedModel& model,
                        const EmbeddingsRequest& request) {
  if (model.embeddings.pooling == Pooling::kNone) {
    return WithCode(
        WithParam(InvalidArgument("model ", model.name,
                                  " has no embeddings: ", model.embeddings.why),
                  "model"),
        "unsupported_endpoint");
  }
  const auto size = static_cast<size_t>(model.hidden_size);
  if (request.dimensions <= size) return OkStatus();
  return FieldError("dimensions", "must be at most ", size,
                    ", the values of this model's embeddings, got ",
                    request.dimensions);
}

StatusOr<std::vector<TokenId>> EncodeInput(const ServingContext& context,
                                           const EmbeddingsRequest& request,
                                           const Prompt& input) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) return *ids;
  const auto& text = std::get<std::string>(input);
  if (text.empty()) return FieldError(request.input, "must not be empty");
  SLUICE_RETURN_IF_ERROR(
      CheckText(request.input, text.size(), MaxTokenizeBytes(context)));
  return context.model.text->Encode(text, request.adds_special_tokens);
}

StatusOr<Prepared> Prepare(const ServingContext& context,
                           const http::HttpRequest& http,
                           EmbeddingsRequest request) {
  const ServedModel& model = context.model;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, "model", request.model));
  SLUICE_RETURN_IF_ERROR(CheckModelEmbeds(model, request));
  const size_t values = request.dimensions > 0
                            ? request.dimensions
                            : static_cast<size_t>(model.hidden_size);
  const size_t bytes = request.inputs.size() * values * kMaxFloatBytes;
  if (bytes > context.limits.answer_bytes) {
    return WithCode(
        FieldError(request.input, request.inputs.size(), " embeddings of ",
                   values, " values may take ", bytes, " bytes, limit ",
                   context.limits.answer_bytes,
                   " (the server's --max-answer-bytes)"),
        "request_too_large");
  }
  FieldNames names;
  names.prompt = request.input;
  GenerationFields fields(names);
  fields.max_tokens = 0;
  fields.temperature = 0;
  SLUICE_ASSIGN_OR_RETURN(const RequestTerms terms, ReadTerms(http));
  const auto most = static_cast<size_t>(MaxContext(context));
  Prepared prepared;
  prepared.dimensions = request.dimensions;
  prepared.write = std::move(request.write);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const auto annotated = [&](const Status& status) {
      if (request.inputs.size() == 1) return status;
      Status named = Annotate(status, "input ", i);
      status.ForEachPayload([&named](auto key, const auto& value) {
        named.SetPayload(key, value);
      });
      return named;
    };
    auto ids = EncodeInput(context, request, request.inputs[i]);
    if (!ids.ok()) return annotated(ids.status());
    if (request.truncates && ids->size() > most) ids->resize(most);
    auto made = MakeGenerateRequest(context, fields, *std::move(ids), 0);
    if (!made.ok()) return annotated(made.status());
    made->sampling.hidden = WantedBy(model.embeddings.pooling);
    made->request_id = Cat(terms.id, "/", i);
    made->tenant = terms.tenant;
    made->client = terms.client;
    made->deadline = terms.deadline;
    prepared.requests.push_back(*std::move(made));
  }
  return prepared;
}

// Runs the prompts of one request, some at once. On the exchange's loop; keeps
// itself alive until every prompt has ended.
class EmbeddingsRunner : public std::enable_shared_from_this<EmbeddingsRunner> {
 public:
  EmbeddingsRunner(const ServingContext& context, Prepared prepared,
                   std::shared_ptr<http::Exchange> exchange)
      : context_(context),
        prepared_(std::move(prepared)),
        exchange_(std::move(exchange)),
        running_(prepared_.requests.size()) {
    result_.rows.resize(prepared_.requests.size());
  }

  void Start() {
    http::AnswerFigures& figures = exchange_->figures();
    figures.generates = true;
    for (const GenerateRequest& request : prepared_.requests) {
      figures.prompt_tokens += std::ssize(request.prompt_tokens);
    }
    result_.prompt_tokens = figures.prompt_tokens;
    exchange_->OnGone(
        [self = shared_from_this()](http::Gone) { self->Stop(); });
    if (running_.empty()) return Finish();
    SubmitMore();
  }

 private:
  // Pools one prompt's rows on the engine's thread.
  class Sink : public TokenSink {
   public:
    Sink(std::shared_ptr<EmbeddingsRunner> runner, size_t index)
        : runner_(std::move(runner)),
          index_(index),
          pooler_(runner_->context_.model.embeddings.pooling) {
      const GenerateRequest& request = runner_->prepared_.requests[index];
      wanted_rows_ = request.sampling.hidden == HiddenWanted::kLast
                         ? 1
                         : request.prompt_tokens.size();
    }

    void OnTokens(TokenEvent event) override {
      const auto size =
          static_cast<size_t>(runner_->context_.model.hidden_size);
      if (event.cached_tokens) cached_tokens_ = *event.cached_tokens;
      if (event.logits.empty()) return;
      if (event.logits.size() % size != 0) {
        status_ = Internal("the last stage sent ", event.logits.size(),
                           " values of hidden states, of ", size, " each");
        return;
      }
      pooler_.Add(event.logits, size);
      num_rows_ += event.logits.size() / size;
    }

    void OnEnd(FinalEvent event) override {
      if (event.reason == FinishReason::kError) status_ = event.status;
      if (event.reason == FinishReason::kCancelled) {
        status_ = Unavailable("cancelled");
      }
      if (status_.ok() && num_rows_ != wanted_rows_) {
        status_ = Internal("the last stage sent ", num_rows_,
                           " rows of hidden states, asked for ", wanted_rows_);
      }
      std::vector<float> row;
      if (status_.ok()) row = pooler_.Finish(runner_->prepared_.dimensions);
      if (!std::ranges::all_of(
              row, [](float value) { return std::isfinite(value); })) {
        status_ = Internal("the hidden states are no numbers");
      }
      http::Exchange& on = *runner_->exchange_;
      on.Post([runner = runner_, index = index_, status = status_,
               row = std::move(row), stats = event.stats]() mutable {
        runner->Take(index, status, std::move(row), stats);
      });
    }

   private:
    const std::shared_ptr<EmbeddingsRunner> runner_;
    const size_t index_;
    Pooler pooler_;
    size_t num_rows_ = 0;
    size_t wanted_rows_ = 0;
    int32_t cached_tokens_ = 0;
    Status status_;
  };

  void SubmitMore() {
    while (!is_over_ && next_ < running_.size() && num_running_ < most_) {
      const size_t index = next_++;
      ++num_running_;
      auto sequence = context_.engine.Submit(
          prepared_.requests[index],
          std::make_shared<Sink>(shared_from_this(), index));
      if (sequence.ok()) {
        running_[index] = *sequence;
        continue;
      }
      next_ = index;
      --num_running_;
      // A full queue has the places of the prompts that are in it.
      most_ = num_running_;
      const bool waits =
          sequence.status().code() == StatusCode::kResourceExhausted &&
          num_running_ > 0;
      if (!waits) Fail(sequence.status());
      return;
    }
  }

  void Take(size_t index, const Status& status, std::vector<float> row,
            const SequenceStats& stats) {
    running_[index].reset();
    --num_running_;
    ++num_ended_;
    const double seconds =
        std::chrono::duration<double>(Clock::now() - begun_).count();
    context_.metrics.OnSequenceEnd(status.ok() ? Outcome::kStop
                                   : is_over_  ? Outcome::kAbort
                                               : Outcome::kError,
                                   stats, 0, seconds);
    exchange_->figures().cached_tokens += stats.cached_tokens;
    if (is_over_) return;
    if (!status.ok()) return Fail(status);
    held_ += row.size() * sizeof(float);
    result_.rows[index] = std::move(row);
    if (!exchange_->Hold(held_)) {
      return Fail(Unavailable("memory for answers is short"));
    }
    if (num_ended_ == running_.size()) return Finish();
    SubmitMore();
  }

  void Finish() {
    is_over_ = true;
    result_.took = Clock::now() - begun_;
    const size_t bytes = 2 * held_ * kMaxFloatBytes / sizeof(float);
    RunTextWork({context_.work, context_.metrics, /*goes_on=*/true}, exchange_,
                bytes, [self = shared_from_this()] {
                  auto response = std::make_shared<http::HttpResponse>(
                      self->prepared_.write(self->result_));
                  self->exchange_->Post([self, response] {
                    self->exchange_->Hold(0);
                    self->exchange_->Send(std::move(*response));
                  });
                });
  }

  void Fail(const Status& status) {
    if (is_over_) return;
    http::ApiError error = ToApiError(status);
    if (error.http_status == 503 && !RetryAfterSeconds(status)) {
      error.retry_after_seconds = context_.readiness().retry_after_seconds;
    }
    exchange_->SendError(std::move(error));
    Stop();
  }

  void Stop() {
    is_over_ = true;
    for (const std::optional<SequenceId>& sequence : running_) {
      if (sequence) context_.engine.Cancel(*sequence);
    }
  }

  const ServingContext context_;
  Prepared prepared_;
  const std::shared_ptr<http::Exchange> exchange_;
  const TimePoint begun_ = Clock::now();
  std::vector<std::optional<SequenceId>> running_;  // by input
  size_t next_ = 0;
  size_t most_ = kMostAtOnce;
  size_t num_running_ = 0;
  size_t num_ended_ = 0;
  size_t held_ = 0;  // bytes of the rows so far
  bool is_over_ = false;
  Embeddings result_;
};

}  // namespace

void RunEmbeddings(const ServingContext& context,
                   Maker<EmbeddingsRequest> parse,
                   std::shared_ptr<http::Exchange> exchange) {
  const TextWorkers workers = WorkersFor(context, *exchange);
  const size_t bytes = TextMemory(*exchange);
  auto make = [context, parse, exchange]() -> StatusOr<Prepared> {
    SLUICE_ASSIGN_OR_RETURN(EmbeddingsRequest request,
                            parse(context, exchange->request()));
    return Prepare(context, exchange->request(), std::move(request));
  };
  auto run = [context](const std::shared_ptr<http::Exchange>& on,
                       StatusOr<Prepared> prepared, const TraceSpan&) {
    if (!prepared.ok()) {
      context.metrics.OnRejection(Rejection::kInvalid);
      return on->SendError(ToApiError(prepared.status()));
    }
    std::make_shared<EmbeddingsRunner>(context, *std::move(prepared), on)
        ->Start();
  };
  WorkThenUse(workers, bytes, std::move(make), std::move(run),
              std::move(exchange));
}

}  // namespace sluice::serving
