#ifndef SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_EXCHANGE_H_
#define SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_EXCHANGE_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "services/gateway/http/connection.h"
#include "services/gateway/http/exchange.h"

namespace sluice::gateway {

// How the connection frames an answer.
struct AnswerFraming {
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  bool head_only = false;  // the request was HEAD
  bool keep_alive = true;
};

// An exchange on a Connection: a queue of byte blocks that the connection's
// coroutine writes, one write each.
class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection,
                     HttpRequest request, AnswerFraming framing);
  ~ConnectionExchange() override;

  HttpRequest& request() override { return request_; }
  void Post(std::function<void()> work) override;
  void Send(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void SendChunk(std::string bytes) override;
  void EndStream() override;
  void OnGone(std::function<void(Gone)> callback) override;
  void set_route(std::string_view route) override { route_ = route; }

  // For the connection --------------------------------------------------------
  bool finished() const { return finished_; }
  bool gone() const { return gone_.has_value(); }
  bool keep_alive() const { return framing_.keep_alive; }
  bool has_block() const { return !blocks_.empty(); }
  std::string TakeBlock();
  void BlockWritten(size_t bytes);
  void MarkGone(Gone why);
  // The answer is written, or nobody is left to read it. Tells the observer.
  void Close();

 private:
  void Enqueue(std::string block);
  bool open() const { return !finished_ && !gone_; }

  std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  AnswerFraming framing_;
  std::string route_ = "other";
  std::deque<std::string> blocks_;
  size_t backlog_ = 0;
  int status_ = 0;
  bool streaming_ = false;
  bool finished_ = false;
  bool closed_ = false;
  std::optional<Gone> gone_;
  std::function<void(Gone)> on_gone_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_EXCHANGE_H_
