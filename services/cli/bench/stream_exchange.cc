#include "services/cli/bench/stream_exchange.h"

#include <utility>

namespace sluice::cli {
namespace {

constexpr size_t kMaxRefusalBytes = 64 << 10;

Outcome OutcomeOf(HttpCall::End end) {
  switch (end) {
    case HttpCall::End::kDone:
      return Outcome::kDone;
    case HttpCall::End::kConnect:
      return Outcome::kConnect;
    case HttpCall::End::kBroken:
      return Outcome::kBroken;
    case HttpCall::End::kTimeout:
      return Outcome::kTimeout;
    case HttpCall::End::kCancelled:
      return Outcome::kCancelled;
  }
  return Outcome::kBroken;
}

}  // namespace

StreamExchange::StreamExchange(ConnectionPool& pool, const std::string& head,
                               const LoadRequest& request, RequestRecord record)
    : call_(std::make_shared<HttpCall>(pool, head, request.body)),
      record_(std::move(record)) {
  record_.outcome = Outcome::kDone;
  record_.asked_prompt_tokens = request.prompt_tokens;
  record_.asked_output_tokens = request.output_tokens;
  record_.prompt_tokens = request.prompt_tokens;
}

void StreamExchange::Start(Duration timeout, OnTokens on_tokens, OnEnd on_end) {
  on_tokens_ = std::move(on_tokens);
  on_end_ = std::move(on_end);
  const auto self = shared_from_this();
  call_->Start({timeout}, {[self](std::string_view bytes, TimePoint at) {
                             self->OnBody(bytes, at);
                           },
                           [self](HttpCall::End end, const std::string& error) {
                             self->OnCallEnd(end, error);
                           }});
}

void StreamExchange::OnBody(std::string_view bytes, TimePoint at) {
  const ResponseParser& response = call_->response();
  record_.http_status = response.status();
  if (record_.http_status != 200 || !response.is_event_stream()) {
    if (refusal_.size() < kMaxRefusalBytes) refusal_ += bytes;
    return;
  }
  for (const std::string& data : events_.Feed(bytes)) {
    if (!OnEvent(at, data)) return;
  }
}

bool StreamExchange::OnEvent(TimePoint at, const std::string& data) {
  const StatusOr<StreamChunk> chunk = ParseStreamChunk(data);
  if (!chunk.ok()) Fail(Outcome::kBroken, Message(chunk.status()));
  if (chunk.ok() && chunk->error) Fail(Outcome::kError, *chunk->error);
  if (record_.outcome != Outcome::kDone) {
    call_->Cancel();
    return false;
  }
  complete_ = complete_ || chunk->is_end || chunk->is_finish;
  if (chunk->prompt_tokens) record_.prompt_tokens = *chunk->prompt_tokens;
  if (chunk->cached_tokens) record_.cached_tokens = *chunk->cached_tokens;
  if (chunk->completion_tokens) {
    record_.output_tokens = *chunk->completion_tokens;
    record_.source = TokenSource::kUsage;
  }
  if (chunk->Tokens() > 0) OnToken(at, *chunk);
  return true;
}

void StreamExchange::OnToken(TimePoint at, const StreamChunk& chunk) {
  record_.arrivals.push_back({at, chunk.Tokens()});
  counted_ += chunk.Tokens();
  if (record_.source != TokenSource::kUsage) {
    record_.output_tokens = counted_;
    if (chunk.ids) record_.source = TokenSource::kTokenIds;
  }
  on_tokens_(chunk.Tokens());
}

void StreamExchange::Fail(Outcome outcome, const std::string& error) {
  record_.outcome = outcome;
  record_.error = error;
}

void StreamExchange::JudgeWhole() {
  const int status = record_.http_status;
  if (status != 200) {
    Fail(status == 429 ? Outcome::kRefused : Outcome::kHttpError,
         ErrorText(status, refusal_));
  } else if (!call_->response().is_event_stream()) {
    Fail(Outcome::kBroken, "the answer is no text/event-stream");
  } else if (!complete_) {
    Fail(Outcome::kBroken, "the stream ended without [DONE]");
  } else if (record_.arrivals.empty()) {
    Fail(Outcome::kEmpty, "the answer has no token");
  }
}

void StreamExchange::OnCallEnd(HttpCall::End end, const std::string& error) {
  record_.sent = call_->sent();
  record_.new_connection = call_->new_connection();
  record_.retry_after_s = call_->response().retry_after_s();
  if (end == HttpCall::End::kDone) {
    JudgeWhole();
  } else if (record_.outcome == Outcome::kDone) {
    Fail(OutcomeOf(end), error);
  }
  const bool done = record_.outcome == Outcome::kDone;
  record_.ended = done ? call_->ended() : Clock::now();
  on_tokens_ = nullptr;
  std::exchange(on_end_, nullptr)(std::move(record_));
}

}  // namespace sluice::cli
