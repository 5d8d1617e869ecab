#include "common/serving/request_answer.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/retry_after.h"
#include "common/serving/error.h"
#include "common/serving/readiness.h"
#include "common/serving/served_model.h"

namespace sluice::serving {
namespace {

// Adds `name` to the list `names` ("stop,length"), once.
void AddFinish(std::string_view name, std::string& names) {
  if (names.find(name) != std::string::npos)
    return;  // no name contains another
  if (!names.empty()) names += ',';
  names += name;
}

// Returns the bytes in memory.
size_t MemoryOf(const std::vector<TokenResult>& tokens) {
  size_t bytes = tokens.size() * sizeof(TokenResult);
  for (const TokenResult& token : tokens) {
    bytes += token.top_logprobs.capacity() * sizeof(TokenLogprob);
  }
  return bytes;
}
size_t MemoryOf(const Delta& delta) {
  return delta.text.size() + delta.reasoning.size() +
         delta.token_ids.size() * sizeof(TokenId) + MemoryOf(delta.logprobs);
}

// Returns the bytes of `events` of `format`.
std::string BytesOf(const AnswerFormat& format,
                    const std::vector<Event>& events) {
  std::string bytes;
  for (const Event& event : events) {
    bytes +=
        http::FramedEvent(format.framing(), event.json, event.id, event.name);
  }
  return bytes;
}

}  // namespace

RequestAnswer::RequestAnswer(const ServingContext& context,
                             PreparedRequest& prepared,
                             std::shared_ptr<http::Exchange> exchange)
    : context_(context),
      exchange_(std::move(exchange)),
      format_(std::move(prepared.format)),
      stream_(prepared.stream ? std::make_shared<http::EventStream>(
                                    exchange_, prepared.times, prepared.headers,
                                    format_->framing())
                              : nullptr),
      headers_(std::move(prepared.headers)),
      best_of_(prepared.best_of),
      wholes_(prepared.stream ? 0 : prepared.choices.size()) {
  if (!prepared.resumed) return;
  for (const ChoiceProgress& told : prepared.resumed->choices) {
    cuts_.emplace_back(told);
  }
}

void RequestAnswer::Begin(std::weak_ptr<void> owner,
                          std::function<void()> cancel, const Usage& usage) {
  owner_ = std::move(owner);
  cancel_ = std::move(cancel);
  if (stream_ == nullptr) return;
  stream_->Await(BytesOf(*format_, format_->Begin(usage)),
                 [this, weak = owner_] {
                   const auto alive = weak.lock();
                   return alive != nullptr ? Ping() : std::string();
                 });
}

std::string RequestAnswer::Ping() {
  std::vector<Event> events;
  // A writer under way has the format.
  if (writer_ == nullptr || writer_->is_idle()) events = format_->Ping();
  return events.empty() ? format_->framing().comment("ping")
                        : BytesOf(*format_, events);
}

void RequestAnswer::Open() {
  if (!is_done_) stream_->Open();
}

void RequestAnswer::TellRecovery() {
  if (!is_done_ && stream_->is_open()) stream_->SendComment("recovering");
}

void RequestAnswer::Add(size_t index, Delta delta, const Usage& usage) {
  if (delta.finish) {
    AddFinish(FinishName(delta), exchange_->figures().finish);
  }
  if (stream_ == nullptr) {
    Collect(MemoryOf(delta));
    wholes_[index].Append(std::move(delta));
    return;
  }
  if (!cuts_.empty()) {
    Delta rest = delta;
    const Status cut = cuts_[index].Apply(rest);
    if (!cut.ok()) return Fail(cut);
    if (!format_->takes_told_deltas()) delta = std::move(rest);
  }
  const int choice = static_cast<int>(index);
  // A writer under way comes first.
  if ((writer_ != nullptr && !writer_->is_idle()) ||
      delta.EstimatedBytes() > AnswerWriter::kLargeBytes) {
    const size_t bytes = MemoryOf(delta);
    Collect(bytes);
    Writer().WriteEvents(choice, std::move(delta), usage);
    Writer().Then([this, bytes] {
      collected_ -= bytes;
      exchange_->Hold(collected_);
    });
    return;
  }
  for (const Event& event : format_->Chunks(choice, delta, usage)) {
    stream_->Send(event.json, event.id, event.name);
  }
}

void RequestAnswer::CountPrompt(const std::vector<TokenResult>& prompt) {
  Collect(MemoryOf(prompt));
}

void RequestAnswer::Collect(size_t bytes) {
  constexpr size_t kStep = size_t{16} << 10;
  const size_t before = std::exchange(collected_, collected_ + bytes);
  if (is_done_ || before / kStep == collected_ / kStep) return;
  const bool has_begun = stream_ != nullptr ? stream_->is_open() : whole_begun_;
  // A cut stream is closed soon.
  if (exchange_->Hold(collected_) || has_begun) return;
  Fail(Unavailable("memory for answers is short, and this one, of ", collected_,
                   " bytes so far, is the largest"));
}

void RequestAnswer::Finish(const Usage& usage) {
  if (is_done_) return;
  if (stream_ != nullptr) {
    EndStream(usage);
  } else {
    SendWhole(usage);
  }
  is_done_ = true;  // last: an exception above needs an error answer
}

void RequestAnswer::SendWhole(const Usage& usage) {
  std::vector<Delta> wholes = std::exchange(wholes_, {});
  if (best_of_) wholes = BestChoices(std::move(wholes), *best_of_);
  size_t bytes = 0;
  for (const Delta& whole : wholes) bytes += whole.EstimatedBytes();
  if (bytes > AnswerWriter::kLargeBytes) {
    Writer().WriteWhole(std::move(wholes), usage);
    Writer().Then([this] {
      exchange_->EndStream();
      exchange_->Hold(0);
    });
    return;
  }
  http::HttpResponse response;
  response.headers = std::move(headers_);
  response.body = format_->Whole(wholes, usage);
  exchange_->Send(std::move(response));
}

void RequestAnswer::EndStream(const Usage& usage) {
  const auto end = [this, usage] {
    stream_->Open();
    SendLast(format_->End(usage));
  };
  if (writer_ == nullptr) return end();
  writer_->Then(end);
}

void RequestAnswer::SendLast(const std::vector<Event>& events) {
  for (const Event& event : events) {
    stream_->Send(event.json, event.id, event.name);
  }
  stream_->End();
}

void RequestAnswer::Fail(const Status& status) {
  if (std::exchange(is_done_, true)) return;
  http::ApiError error = ToApiError(status);
  if (error.http_status == 503 && !RetryAfterSeconds(status)) {
    error.retry_after_seconds = context_.readiness().retry_after_seconds;
  }
  if (error.http_status == 500) LogFailure(status);
  if (stream_ != nullptr && stream_->is_open()) {
    exchange_->figures().error_type = error.type;
    exchange_->figures().error_code = error.code.value_or("");
    const auto end = [this, error] { SendLast(format_->Fail(error)); };
    if (writer_ == nullptr || writing_failed_) {
      end();
    } else {
      writer_->Then(end);
    }
  } else {
    exchange_->SendError(error);
  }
  cancel_();
}

void RequestAnswer::FailThrown(const Status& what) {
  // Fail logs an internal error.
  if (is_done_ || what.code() != StatusCode::kInternal) LogFailure(what);
  Fail(what);
}

void RequestAnswer::LogFailure(const Status& why) const {
  LogError("request ", exchange_->request().request_id,
           " failed: ", Message(why));
}

AnswerWriter& RequestAnswer::Writer() {
  if (writer_ == nullptr) {
    AnswerWriter::Output output;
    output.send = [this](std::string bytes) { SendPiece(std::move(bytes)); };
    output.fail = [this](const Status& why) { FailWriting(why); };
    writer_ = std::make_unique<AnswerWriter>(
        TextWorkers{context_.work, context_.metrics}, exchange_, *format_,
        std::move(output), owner_);
  }
  return *writer_;
}

void RequestAnswer::SendPiece(std::string bytes) {
  if (stream_ != nullptr) {
    stream_->SendPart(std::move(bytes));
    return;
  }
  if (!std::exchange(whole_begun_, true)) {
    http::HttpResponse head;
    head.headers = std::move(headers_);
    exchange_->BeginStream(std::move(head));
  }
  exchange_->SendChunk(std::move(bytes));
}

void RequestAnswer::FailWriting(const Status& why) {
  writing_failed_ = true;
  if (stream_ != nullptr ? stream_->is_within_event() : whole_begun_) {
    is_done_ = true;
    LogFailure(why);
    cancel_();
    exchange_->Break();
    return;
  }
  is_done_ = false;  // complete, but not written
  if (why.code() == StatusCode::kUnavailable) LogFailure(why);
  Fail(why);
}

}  // namespace sluice::serving
