#include "services/gateway/http/connection_exchange.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace sluice::gateway {

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection,
                                       HttpRequest request,
                                       AnswerFraming framing)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      framing_(framing) {
  ++connection_->context_.stats.exchanges;
}

ConnectionExchange::~ConnectionExchange() { Close(); }

void ConnectionExchange::Post(std::function<void()> work) {
  auto executor = connection_->stream_.get_executor();
  boost::asio::post(executor, std::move(work));
}

void ConnectionExchange::Send(HttpResponse response) {
  if (!open() || streaming_) return;
  status_ = response.status;
  if (connection_->context_.draining) framing_.keep_alive = false;
  std::string block = SerializeHead(
      response, request_.request_id,
      static_cast<long long>(response.body.size()), framing_.keep_alive);
  if (!framing_.head_only) block += response.body;
  finished_ = true;
  on_gone_ = nullptr;
  Enqueue(std::move(block));
}

void ConnectionExchange::BeginStream(HttpResponse head) {
  if (!open() || streaming_) return;
  status_ = head.status;
  streaming_ = true;
  if (framing_.http_1_0 || connection_->context_.draining) {
    framing_.keep_alive = false;
  }
  Enqueue(SerializeHead(head, request_.request_id, framing_.http_1_0 ? -2 : -1,
                        framing_.keep_alive));
}

void ConnectionExchange::SendChunk(std::string bytes) {
  if (!open() || !streaming_ || framing_.head_only || bytes.empty()) return;
  Enqueue(framing_.http_1_0 ? std::move(bytes) : SerializeChunk(bytes));
  if (backlog_ <= connection_->context_.options.limits.backlog_bytes) return;
  ++connection_->context_.stats.slow_readers;
  connection_->Abort(Gone::kSlowReader);
}

void ConnectionExchange::EndStream() {
  if (!open() || !streaming_) return;
  finished_ = true;
  on_gone_ = nullptr;
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

void ConnectionExchange::Enqueue(std::string block) {
  backlog_ += block.size();
  connection_->context_.stats.backlog_bytes +=
      static_cast<long long>(block.size());
  blocks_.push_back(std::move(block));
  connection_->Signal();
}

std::string ConnectionExchange::TakeBlock() {
  std::string block = std::move(blocks_.front());
  blocks_.pop_front();
  return block;
}

void ConnectionExchange::BlockWritten(size_t bytes) {
  backlog_ -= bytes;
  connection_->context_.stats.backlog_bytes -= static_cast<long long>(bytes);
}

void ConnectionExchange::MarkGone(Gone why) {
  if (gone_) return;
  gone_ = why;
  if (finished_) return;
  ++connection_->context_.stats.disconnects;
  // The callback may drop the last reference to itself.
  if (const auto callback = std::exchange(on_gone_, nullptr)) callback(why);
}

void ConnectionExchange::Close() {
  if (std::exchange(closed_, true)) return;
  BlockWritten(backlog_);
  blocks_.clear();
  on_gone_ = nullptr;
  const auto& context = connection_->context_;
  --context.stats.exchanges;
  if (!context.options.observer) return;
  const Duration duration = Clock::now() - request_.arrival;
  context.options.observer(
      {request_.method, route_, finished_ ? status_ : 0, duration});
}

}  // namespace sluice::gateway
