#include "services/cli/bench/stream_exchange.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace sluice::cli {
namespace {

namespace asio = boost::asio;
constexpr size_t kMaxRefusalBytes = 64 << 10;

}  // namespace

StreamExchange::StreamExchange(ConnectionPool& pool, const std::string& head,
                               LoadRequest request, RequestRecord record)
    : pool_(pool),
      socket_(pool.io),
      timer_(pool.io),
      bytes_(Cat(head, request.body.size(), "\r\n\r\n", request.body)),
      record_(std::move(record)) {
  record_.asked_prompt_tokens = request.prompt_tokens;
  record_.asked_output_tokens = request.output_tokens;
  record_.prompt_tokens = request.prompt_tokens;
}

void StreamExchange::Start(Duration timeout, OnTokens on_tokens, OnEnd on_end) {
  on_tokens_ = std::move(on_tokens);
  on_end_ = std::move(on_end);
  record_.sent = Clock::now();
  timer_.expires_after(timeout);
  timer_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->End(Outcome::kTimeout, "no end in time");
  });
  if (pool_.idle.empty()) return Connect();
  socket_ = std::move(pool_.idle.back());
  pool_.idle.pop_back();
  reused_ = true;
  Send();
}

void StreamExchange::Connect() {
  reused_ = false;
  record_.new_connection = true;
  asio::async_connect(
      socket_, pool_.endpoints,
      [self = shared_from_this()](const Error& error, const auto&) {
        if (self->ended_) return;
        if (error) return self->End(Outcome::kConnect, error.message());
        Error ignored;
        self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
        self->Send();
      });
}

void StreamExchange::Send() {
  record_.sent = Clock::now();
  asio::async_write(socket_, asio::buffer(bytes_),
                    [self = shared_from_this()](const Error& error, size_t) {
                      if (self->ended_) return;
                      if (error) return self->OnClosed(error);
                      self->Read();
                    });
}

void StreamExchange::Read() {
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](const Error& error, size_t size) {
        const TimePoint at = Clock::now();
        if (self->ended_) return;
        if (error) return self->OnClosed(error);
        self->OnBytes(at, size);
      });
}

void StreamExchange::OnBytes(TimePoint at, size_t size) {
  const Status fed = parser_.Feed(std::string_view(buffer_.data(), size));
  record_.ended = at;
  if (parser_.has_header()) {
    record_.http_status = parser_.status();
    OnBody(at);
  }
  if (ended_) return;
  if (!fed.ok()) return End(Outcome::kBroken, Message(fed));
  if (parser_.is_done()) return Finish();
  Read();
}

void StreamExchange::OnBody(TimePoint at) {
  const std::string body = parser_.TakeBody();
  if (record_.http_status != 200 || !parser_.is_event_stream()) {
    if (refusal_.size() < kMaxRefusalBytes) refusal_ += body;
    return;
  }
  for (const std::string& data : events_.Feed(body)) {
    if (!OnEvent(at, data)) return;
  }
}

bool StreamExchange::OnEvent(TimePoint at, const std::string& data) {
  const StatusOr<StreamChunk> chunk = ParseStreamChunk(data);
  if (!chunk.ok()) {
    End(Outcome::kBroken, Message(chunk.status()));
    return false;
  }
  if (chunk->error) {
    End(Outcome::kError, *chunk->error);
    return false;
  }
  done_ = done_ || chunk->is_end;
  finished_ = finished_ || chunk->is_finish;
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
    if (chunk.token_ids > 0) record_.source = TokenSource::kTokenIds;
  }
  on_tokens_(chunk.Tokens());
}

void StreamExchange::OnClosed(const Error& error) {
  if (reused_ && record_.ended == TimePoint()) {
    // The server closed a connection that waited: no answer was lost.
    Error ignored;
    socket_.close(ignored);
    return Connect();
  }
  const Status closed = parser_.Close();
  if (closed.ok() && parser_.has_header()) {
    record_.ended = Clock::now();
    record_.http_status = parser_.status();
    OnBody(record_.ended);
    if (!ended_) Finish();
    return;
  }
  End(Outcome::kBroken,
      error == asio::error::eof ? Message(closed) : error.message());
}

void StreamExchange::Finish() {
  const int status = record_.http_status;
  record_.retry_after_s = parser_.retry_after_s();
  Outcome outcome = Outcome::kDone;
  std::string error;
  if (status != 200) {
    outcome = status == 429 ? Outcome::kRefused : Outcome::kHttpError;
    error = ErrorText(status, refusal_);
  } else if (!parser_.is_event_stream()) {
    outcome = Outcome::kBroken;
    error = "the answer is no text/event-stream";
  } else if (!done_ && !finished_) {
    outcome = Outcome::kBroken;
    error = "the stream ended without [DONE]";
  } else if (record_.arrivals.empty()) {
    outcome = Outcome::kEmpty;
    error = "the answer has no token";
  }
  if (parser_.keep_alive()) {
    pool_.idle.push_back(std::move(socket_));
    socket_ = asio::ip::tcp::socket(pool_.io);
  }
  End(outcome, error);
}

void StreamExchange::End(Outcome outcome, const std::string& error) {
  if (ended_) return;
  ended_ = true;
  timer_.cancel();
  Error ignored;
  socket_.close(ignored);
  record_.outcome = outcome;
  record_.error = error;
  if (outcome != Outcome::kDone || record_.ended == TimePoint()) {
    record_.ended = Clock::now();
  }
  on_tokens_ = nullptr;
  std::exchange(on_end_, nullptr)(std::move(record_));
}

}  // namespace sluice::cli
