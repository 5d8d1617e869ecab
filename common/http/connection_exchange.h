#ifndef SLUICE_COMMON_HTTP_CONNECTION_EXCHANGE_H_
#define SLUICE_COMMON_HTTP_CONNECTION_EXCHANGE_H_

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/http/answer_memory.h"
#include "common/http/block_queue.h"
#include "common/http/connection.h"
#include "common/http/exchange.h"
#include "common/http/request_reader.h"

namespace sluice::http {

// Returns the head of `response` to `request`, with the headers of every
// answer: the client's format, CORS, ids. `length` as SerializeHead's.
std::string AnswerHead(HttpResponse response, const HttpRequest& request,
                       const HttpServerOptions& options, long long length,
                       bool keep_alive);

// Returns the answer to a request that an exception ended: 503 if memory was
// short, else 500. The client does not get the exception's words.
HttpResponse FailedAnswer(const Status& why);

// An exchange on a Connection. It puts its answer into a queue of blocks, which
// the connection's coroutine writes one by one.
class ConnectionExchange
    : public Exchange,
      public std::enable_shared_from_this<ConnectionExchange>,
      private AnswerMemory::Holder {
 public:
  // Takes the request, its framing and its body's share from `incoming`.
  ConnectionExchange(std::shared_ptr<Connection> connection,
                     IncomingRequest& incoming);
  ~ConnectionExchange() override;

  HttpRequest& request() override { return request_; }
  void ReleaseBody() override;
  bool TakeBody(const std::string& body) override;
  void Post(std::function<void()> work) override;
  void PostAfter(Duration delay, std::function<void()> work) override;
  void Send(HttpResponse response) override;
  ClientFormat client_format() override;
  void BeginStream(HttpResponse head) override;
  void SendChunk(std::string bytes) override;
  void EndStream() override;
  void Break() override;
  bool Hold(size_t bytes) override;
  void WhenRead(std::function<void()> work) override;
  void OnGone(std::function<void(Gone)> callback) override;
  bool gone() const override { return is_gone_; }
  void Observe(std::shared_ptr<WriteObserver> observer) override {
    blocks_.Observe(std::move(observer));
  }
  void set_route(std::string_view route) override { route_ = route; }

  // For the connection --------------------------------------------------------
  bool finished() const { return finished_; }
  bool keep_alive() const { return framing_.keep_alive; }
  // The answer's bytes for the connection to write.
  BlockQueue& blocks() { return blocks_; }
  // Counts `bytes` of the taken block as written.
  void BlockWritten(size_t bytes);
  void MarkGone(Gone why);
  // Ends the request after an exception and logs it: answers 500 or 503
  // (FailedAnswer) if nothing was sent yet, else closes the connection. No
  // effect on an exchange that has ended.
  void Fail(const Status& why) noexcept;
  // Probes whether the peer still reads: sends "100 Continue" before the
  // answer, or a comment within a stream of events. Clients skip both. False if
  // no such bytes fit here; the client may then count as gone if `can_probe()`
  // is true.
  bool SendProbe();
  // Whether a probe is possible at some time: an HTTP/1.0 client knows no
  // interim answer.
  bool can_probe() const { return !framing_.http_1_0 || events_; }
  // Tells the observer that the answer is written, or that its client is gone.
  void Close();

 private:
  void TellGone(Gone why);  // `on_gone_`, once
  // Writes `block` at once, or queues the rest of it. False: this answer is the
  // one to be cut.
  bool Enqueue(std::string block);
  void Cut() override;
  void CutHere();
  std::string Head(HttpResponse response, long long length);
  bool open() const { return !finished_ && !gone_; }
  void DropLater();  // PostAfter's work, if it has not run

  std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  AnswerFraming framing_;
  const bool late_;  // begun while draining
  std::string route_ = "other";
  std::string error_type_;
  std::string error_code_;
  size_t request_bytes_;
  BodyShare body_share_;  // while the request has its body
  size_t response_bytes_ = 0;
  BlockQueue blocks_;
  size_t held_ = 0;  // collected, not sent
  std::function<void()> on_read_;
  bool events_ = false;        // the answer is a stream of events, under way
  bool within_event_ = false;  // the chunk sent last does not end its event
  int status_ = 0;
  bool streaming_ = false;
  bool finished_ = false;
  bool closed_ = false;
  std::optional<Gone> gone_;
  std::atomic<bool> is_gone_{false};
  std::function<void(Gone)> on_gone_;
  std::optional<boost::asio::steady_timer> timer_;
  // The timer's work. The timer runs it only if it is still there.
  std::shared_ptr<std::function<void()>> later_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_EXCHANGE_H_
