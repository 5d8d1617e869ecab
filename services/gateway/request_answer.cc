// RequestRunner's work on large answers.
#include <utility>

#include "common/http/event_stream.h"
#include "services/gateway/request_runner.h"

namespace sluice::gateway {

size_t RequestRunner::BytesOf(const std::vector<TokenResult>& tokens) {
  size_t bytes = tokens.size() * sizeof(TokenResult);
  for (const TokenResult& token : tokens) {
    bytes += token.top_logprobs.capacity() * sizeof(TokenLogprob);
  }
  return bytes;
}

size_t RequestRunner::MemoryOf(const openai::Delta& delta) {
  return delta.text.size() + delta.reasoning.size() +
         delta.token_ids.size() * sizeof(TokenId) + BytesOf(delta.logprobs);
}

void RequestRunner::SendWhole() {
  std::vector<openai::Delta> wholes;
  size_t bytes = 0;
  for (Choice& choice : choices_) {
    bytes += choice.whole.EstimatedBytes();
    wholes.push_back(std::move(choice.whole));
  }
  if (bytes > AnswerWriter::kLargeBytes) {
    Writer().WriteWhole(std::move(wholes), usage_);
    Writer().Then([this] {
      exchange_->EndStream();
      exchange_->Hold(0);
    });
    return;
  }
  http::HttpResponse response;
  response.body = prepared_.format->Whole(wholes, usage_);
  exchange_->Send(std::move(response));
}

void RequestRunner::EndStream() {
  const auto end = [this] {
    if (prepared_.include_usage)
      stream_->Send(prepared_.format->UsageChunk(usage_));
    stream_->End();
  };
  if (writer_ == nullptr) return end();
  writer_->Then(end);
}

AnswerWriter& RequestRunner::Writer() {
  if (writer_ == nullptr) {
    AnswerWriter::Output output;
    output.send = [this](std::string bytes) { SendPiece(std::move(bytes)); };
    output.fail = [this](const Status& why) { FailWriting(why); };
    writer_ = std::make_unique<AnswerWriter>(
        TextWorkers{context_.work, context_.metrics}, exchange_,
        *prepared_.format, std::move(output), weak_from_this());
  }
  return *writer_;
}

void RequestRunner::SendPiece(std::string bytes) {
  if (stream_ != nullptr) {
    stream_->SendPart(std::move(bytes));
    return;
  }
  if (!std::exchange(whole_begun_, true)) {
    exchange_->BeginStream(http::HttpResponse());
  }
  exchange_->SendChunk(std::move(bytes));
}

void RequestRunner::FailWriting(const Status& why) {
  writing_failed_ = true;
  if (stream_ != nullptr ? stream_->is_within_event() : whole_begun_) {
    done_ = true;
    LogThrown(why);
    CancelAll();
    exchange_->Break();
    return;
  }
  done_ = false;  // complete, but not written
  if (why.code() == StatusCode::kUnavailable) LogThrown(why);
  Fail(why);
}

bool RequestRunner::HasBegun() const {
  return stream_ != nullptr ? stream_->is_open() : whole_begun_;
}

// Short memory for answers ends the largest one.
void RequestRunner::Collect(size_t bytes) {
  constexpr size_t kStep = size_t{16} << 10;
  const size_t before = std::exchange(collected_, collected_ + bytes);
  if (done_ || before / kStep == collected_ / kStep) return;
  // A cut stream is closed soon.
  if (exchange_->Hold(collected_) || HasBegun()) return;
  Fail(Unavailable("memory for answers is short, and this one, of ", collected_,
                   " bytes so far, is the largest"));
}

}  // namespace sluice::gateway
