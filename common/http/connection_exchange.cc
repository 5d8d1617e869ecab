#include "common/http/connection_exchange.h"

#include <boost/asio/post.hpp>
#include <utility>
#include <vector>

#include "common/base/exception_counts.h"
#include "common/base/log.h"

namespace sluice::http {
namespace {

// A client with fewer unread bytes has read most of its answer.
constexpr size_t kMaxUnsentOfReader = size_t{256} << 10;

constexpr std::string_view kCutReason =
    "Memory for answers is short, and this is the largest one of the client "
    "that holds the most";

}  // namespace

std::string AnswerHead(HttpResponse response, const HttpRequest& request,
                       const HttpServerOptions& options, long long length,
                       bool keep_alive) {
  HttpHeaders own;
  options.client_format(request).add_headers(
      request, Clock::now() - request.arrival, own);
  for (auto& header : own) {
    // An answer that another server made has its own.
    std::erase_if(response.headers, [&header](const auto& other) {
      return AsciiLower(other.first) == AsciiLower(header.first);
    });
    response.headers.push_back(std::move(header));
  }
  options.cors.AddTo(request.Header("origin"), response.headers);
  if (!request.traceparent.empty()) {
    response.headers.emplace_back("Traceparent", request.traceparent);
  }
  return SerializeHead(response, request.request_id, length, keep_alive);
}

HttpResponse FailedAnswer(const Status& why) {
  const bool short_of_memory = why.code() == StatusCode::kUnavailable;
  return TransportError(short_of_memory ? 503 : 500,
                        short_of_memory
                            ? "There was too little memory for this request"
                            : "The server failed to answer this request");
}

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection,
                                       IncomingRequest& incoming)
    : Holder(incoming.request.client),
      connection_(std::move(connection)),
      request_(std::exchange(incoming.request, {})),
      framing_(incoming.framing),
      late_(connection_->context_.draining),
      request_bytes_(request_.body.size()),
      body_share_(std::move(incoming.body_share)),
      blocks_(connection_->context_, *this) {
  connection_->context_.answers.Add(*this);
  ++connection_->context_.stats.exchanges;
  if (late_) ++connection_->context_.stats.late_exchanges;
}

// A reader of the body may hold the last reference, after the client left.
ConnectionExchange::~ConnectionExchange() {
  Close();
  ReleaseBody();
  connection_->context_.answers.Remove(*this);
}

void ConnectionExchange::Post(std::function<void()> work) {
  auto executor = connection_->stream_.get_executor();
  auto guarded = [weak = weak_from_this(), work = std::move(work)] {
    const Status done = CatchAndCount("http_post", work);
    if (done.ok()) return;
    if (const auto exchange = weak.lock()) exchange->Fail(done);
  };
  boost::asio::post(executor, std::move(guarded));
}

void ConnectionExchange::PostAfter(Duration delay, std::function<void()> work) {
  if (!open()) return;
  later_ = std::make_shared<std::function<void()>>(std::move(work));
  if (!timer_) timer_.emplace(connection_->stream_.get_executor());
  timer_->expires_after(delay);
  const std::weak_ptr<std::function<void()>> later = later_;
  timer_->async_wait([this, later](boost::system::error_code error) {
    // Without `later` the exchange may be gone, too.
    if (error || later.expired()) return;
    const auto due = std::exchange(later_, nullptr);
    const auto weak = weak_from_this();
    const Status done = CatchAndCount("http_timer", *due);
    if (done.ok()) return;
    if (const auto exchange = weak.lock()) exchange->Fail(done);
  });
}

void ConnectionExchange::DropLater() {
  later_ = nullptr;
  if (timer_) timer_->cancel();
}

std::string ConnectionExchange::Head(HttpResponse response, long long length) {
  if (connection_->context_.draining) framing_.keep_alive = false;
  status_ = response.status;
  if (response.error) {
    error_type_ = std::move(response.error->type);
    error_code_ = std::move(response.error->code).value_or("");
  }
  return AnswerHead(std::move(response), request_,
                    connection_->context_.options, length, framing_.keep_alive);
}

void ConnectionExchange::ReleaseBody() {
  std::string().swap(request_.body);  // its memory, too
  body_share_.Set(0);
}

bool ConnectionExchange::TakeBody(const std::string& body) {
  const ConnectionContext& context = connection_->context_;
  const size_t bytes = body.size();
  if (!BodyFits(context, bytes,
                context.stats.body_bytes + static_cast<long long>(bytes))) {
    return false;
  }
  body_share_.Set(bytes);
  request_.body = body;
  return true;
}

ClientFormat ConnectionExchange::client_format() {
  return connection_->context_.options.client_format(request_);
}

void ConnectionExchange::Send(HttpResponse response) {
  if (!open() || streaming_) return;
  WriteError(client_format(), request_, response);
  // The collected bytes are the sent ones: they count once.
  const bool fits = framing_.head_only || Hold(response.body.size());
  Hold(0);
  if (!fits) {
    response = TransportError(503, kCutReason);
    WriteError(client_format(), request_, response);
  }
  const std::string body = std::move(response.body);
  // These have no body, and no length of one either.
  const bool bodiless = response.status == 204 || response.status == 304;
  const auto length =
      bodiless ? kNoLength : static_cast<long long>(body.size());
  std::string block = Head(std::move(response), length);
  if (!framing_.head_only) {
    block += body;
    response_bytes_ += body.size();
  }
  finished_ = true;
  on_gone_ = nullptr;
  DropLater();
  Enqueue(std::move(block));
}

void ConnectionExchange::BeginStream(HttpResponse head) {
  if (!open() || streaming_) return;
  streaming_ = true;
  events_ = head.content_type.starts_with("text/event-stream");
  if (framing_.http_1_0) framing_.keep_alive = false;
  const long long length = framing_.http_1_0 ? kNoLength : kChunked;
  Enqueue(Head(std::move(head), length));
}

void ConnectionExchange::SendChunk(std::string bytes) {
  if (!open() || !streaming_ || framing_.head_only || bytes.empty()) return;
  response_bytes_ += bytes.size();
  within_event_ = events_ && !bytes.ends_with("\n\n");
  const bool fits =
      Enqueue(framing_.http_1_0 ? std::move(bytes) : SerializeChunk(bytes));
  if (!fits) CutHere();
}

void ConnectionExchange::Break() {
  if (open()) connection_->Abort(Gone::kShutdown);
}

bool ConnectionExchange::Hold(size_t bytes) {
  if (!open()) return true;
  const auto change =
      static_cast<long long>(bytes) - static_cast<long long>(held_);
  held_ = bytes;
  const bool fits = connection_->context_.answers.Change(*this, change);
  if (!fits && streaming_) CutHere();
  return fits;
}

void ConnectionExchange::WhenRead(std::function<void()> work) {
  if (gone_) return;
  if (blocks_.backlog() <= kMaxUnsentOfReader) {
    Post(std::move(work));
  } else {
    on_read_ = std::move(work);
  }
}

// An exchange that is not the connection's present one is over. A later
// exchange at the same address is not cut.
void ConnectionExchange::Cut() {
  auto executor = connection_->stream_.get_executor();
  boost::asio::post(executor, [connection = connection_, this] {
    if (connection->current_.get() == this && is_cut()) CutHere();
  });
}

void ConnectionExchange::CutHere() {
  if (status_ != 0 || streaming_) {
    connection_->Abort(Gone::kSlowReader);
    return;
  }
  if (!open()) return;
  const auto callback = std::exchange(on_gone_, nullptr);
  Send(TransportError(503, kCutReason));
  if (callback) callback(Gone::kSlowReader);
}

bool ConnectionExchange::SendProbe() {
  if (!open()) return false;
  if (events_) {
    if (!within_event_) SendChunk(":\n\n");
    return open();
  }
  if (status_ != 0 || framing_.http_1_0) return false;
  Enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void ConnectionExchange::EndStream() {
  if (!open() || !streaming_) return;
  finished_ = true;
  on_gone_ = nullptr;
  DropLater();
  if (framing_.http_1_0 || framing_.head_only) {
    connection_->Signal();
  } else {
    Enqueue(std::string(kLastChunk));
  }
}

void ConnectionExchange::OnGone(std::function<void(Gone)> callback) {
  if (gone_) {
    callback(*gone_);
  } else if (!finished_) {
    on_gone_ = std::move(callback);
  }
}

bool ConnectionExchange::Enqueue(std::string block) {
  if (blocks_.is_empty()) {
    const int64_t begin_ns = blocks_.is_observed() ? MonotonicNanos() : 0;
    const size_t written = connection_->WriteNow(block);
    if (written == block.size()) {
      if (finished_) connection_->Signal();
      if (blocks_.is_observed()) {
        blocks_.TellWritten(begin_ns, {begin_ns, MonotonicNanos()});
      }
      return true;
    }
    block.erase(0, written);
  }
  const bool fits = blocks_.Push(std::move(block));
  connection_->Signal();
  return fits;
}

void ConnectionExchange::BlockWritten(size_t bytes) {
  blocks_.Written(bytes);
  if (on_read_ && blocks_.backlog() <= kMaxUnsentOfReader) {
    Post(std::exchange(on_read_, nullptr));
  }
}

void ConnectionExchange::MarkGone(Gone why) {
  if (gone_) return;
  gone_ = why;
  is_gone_ = true;
  const auto unread = std::exchange(on_read_, nullptr);  // holds itself
  auto& stats = connection_->context_.stats;
  const bool slow = why == Gone::kSlowReader;
  if (slow) ++stats.slow_readers;
  // A client that leaves after the answer's end may have read the answer.
  if (slow || !finished_) ++stats.disconnects;
  DropLater();
  if (finished_) return;
  TellGone(why);
}

void ConnectionExchange::TellGone(Gone why) {
  // The callback may drop the last reference to itself.
  const auto callback = std::exchange(on_gone_, nullptr);
  if (!callback) return;
  const Status told = CatchAndCount("http_gone", [&] { callback(why); });
  if (!told.ok()) {
    LogError("request ", request_.request_id, ": ", Message(told));
  }
}

void ConnectionExchange::Fail(const Status& why) noexcept {
  if (!open()) return;
  const Status answered = CatchAndCount("http_failure", [&] {
    LogError("request ", request_.request_id, " of ", route_, ": ",
             Message(why));
    if (streaming_ || status_ != 0) return;
    // The handler stops: no client reads the rest.
    auto callback = std::exchange(on_gone_, nullptr);
    Send(FailedAnswer(why));
    on_gone_ = std::move(callback);
    TellGone(Gone::kFailed);
  });
  if (!finished_) connection_->Abort(Gone::kFailed);
}

void ConnectionExchange::Close() {
  if (std::exchange(closed_, true)) return;
  on_read_ = nullptr;
  blocks_.Clear();
  on_gone_ = nullptr;
  connection_->context_.answers.Remove(*this);
  DropLater();
  const auto& context = connection_->context_;
  if (late_) --context.stats.late_exchanges;
  --context.stats.exchanges;
  const Status told = CatchAndCount("http_observer", [&] {
    blocks_.TellClosed({finished_ ? status_ : 0, error_type_, &figures()});
    if (!context.options.observer) return;
    const Duration duration = Clock::now() - request_.arrival;
    context.options.observer({request_.method, route_, finished_ ? status_ : 0,
                              duration, request_.tenant, error_type_,
                              request_bytes_, response_bytes_, error_code_,
                              &request_, &figures()});
  });
  if (!told.ok()) {
    LogError("request ", request_.request_id, ": ", Message(told));
  }
}

}  // namespace sluice::http
