#ifndef SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_H_
#define SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "services/gateway/http/http_server.h"

namespace sluice::gateway {

class ConnectionExchange;

// What all connections of a server share.
struct ConnectionContext {
  const HttpServerOptions& options;
  HttpServerStats& stats;
  const std::atomic<bool>& draining;
};

// One client connection: reads a request, has it answered, and so on. All of
// it runs on the socket's own loop, one thread, so it has no locks.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket,
             const ConnectionContext& context);
  ~Connection();

  // `ended` runs once, when the connection is closed.
  void Start(std::function<void()> ended);
  // Closes it now if no exchange is in progress.
  void CloseIfIdle();
  // Closes it now; an exchange in progress learns it with `why`.
  void Abort(Gone why);

 private:
  friend class ConnectionExchange;
  using Nothing = boost::asio::awaitable<void>;

  struct Parser;  // Beast's

  Nothing Run();
  // A request, or nothing when the connection is to be closed. Then
  // `refusal_` may hold the answer to what was wrong.
  boost::asio::awaitable<std::optional<HttpRequest>> ReadRequest();
  boost::asio::awaitable<bool> AwaitFirstByte();
  boost::asio::awaitable<bool> ReadHeader(Parser& parser);
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  boost::asio::awaitable<bool> AnswerExpectation(std::string_view expect);
  Nothing Watch(std::shared_ptr<ConnectionExchange> exchange);
  Nothing WriteAnswer(std::shared_ptr<ConnectionExchange> exchange);
  Nothing StopWatch();
  Nothing WriteRefusal();
  Nothing Linger();
  Nothing WaitForSignal();
  void Signal();
  void Refuse(int status, std::string_view reason);
  void RefuseLargeBody();
  // Counts `bytes` as this connection's share of all bodies, instead of what
  // was counted before.
  void CountBody(size_t bytes);

  const ConnectionContext context_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer signal_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<ConnectionExchange> current_;
  std::optional<HttpResponse> refusal_;
  size_t counted_body_ = 0;
  bool watching_ = false;
  bool aborted_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HTTP_CONNECTION_H_
