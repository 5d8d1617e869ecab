#ifndef SLUICE_COMMON_HTTP_CONNECTION_H_
#define SLUICE_COMMON_HTTP_CONNECTION_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/http/answer_memory.h"
#include "common/http/client_stream.h"
#include "common/http/connection_table.h"
#include "common/http/http_server.h"
#include "common/http/tls_identity.h"

namespace sluice::http {

class ConnectionExchange;

// The parts that all connections of a server share.
struct ConnectionContext {
  const HttpServerOptions& options;
  HttpServerStats& stats;
  const std::atomic<bool>& draining;
  AnswerMemory& answers;
  const TlsIdentity* tls = nullptr;  // null: plain HTTP
};

// One client connection: reads a request, waits for its answer, and repeats.
// All of it runs on the socket's loop, in one thread, without locks.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `place` may be null: then no other client's connection closes this one.
  Connection(boost::asio::ip::tcp::socket socket,
             const ConnectionContext& context,
             std::unique_ptr<ConnectionTable::Place> place = nullptr);
  ~Connection();

  // `ended` runs once, when the connection is closed. The caller holds the
  // connection until then.
  void Start(std::function<void()> ended);
  // Closes the connection for another client, unless a request is being
  // answered.
  void MakeRoom();
  // Closes the connection if it waits for a request other than its first.
  void CloseIfIdle();
  // Closes the connection; an exchange in progress ends with `why`.
  void Abort(Gone why);

 private:
  friend class ConnectionExchange;
  using Nothing = boost::asio::awaitable<void>;

  struct Parser;  // Beast's
  class Ending;

  Nothing Run();
  // Requests and answers, until the connection is to be closed.
  Nothing Serve();
  // Handles an exception of Serve: the current request gets an error if nothing
  // of its answer was sent.
  void OnException(std::exception_ptr thrown) noexcept;
  // Ends the connection in any state.
  void End() noexcept;
  // Begins the next exchange: its request is read whole. False when the
  // connection is to be closed; then `refusal_` may hold a last answer.
  boost::asio::awaitable<bool> ReadRequest();
  boost::asio::awaitable<bool> AwaitFirstByte();
  boost::asio::awaitable<bool> Handshake();
  boost::asio::awaitable<bool> ReadHeader(Parser& parser);
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  boost::asio::awaitable<bool> AnswerExpectation(std::string_view expect);
  // Parses the part of a message that is in the buffer; need_more if the
  // message goes on.
  void ParseBuffered(Parser& parser, boost::system::error_code& error);
  // Parses what there is, or reads more first.
  boost::asio::awaitable<boost::system::error_code> ReadSome(Parser& parser);
  // False, with a refusal, for a header that is well-formed and yet refused.
  bool AcceptHeader(const Parser& parser);
  bool AcceptFraming(unsigned version);
  bool AcceptBodySize(const Parser& parser);

  void Dispatch(const std::shared_ptr<ConnectionExchange>& exchange);
  Nothing Watch(std::shared_ptr<ConnectionExchange> exchange);
  Nothing WriteAnswer(std::shared_ptr<ConnectionExchange> exchange);
  // Writes `block`, which outlives the call. A client that takes less than
  // kWriteBytes within the write time gets a timeout.
  boost::asio::awaitable<boost::system::error_code> WriteBlock(
      std::string_view block);
  // Writes what the socket takes at once of `block`, if nothing is to be
  // written before it. Returns how much; what is left is the coroutine's.
  size_t WriteNow(std::string_view block);
  Nothing StopWatch();
  void AskIfStillThere(std::shared_ptr<ConnectionExchange> exchange);
  // One read by Watch, into `buffer_`.
  boost::asio::awaitable<boost::system::error_code> ReadAhead();
  Nothing WriteRefusal();
  Nothing Linger();
  Nothing WaitForSignal();
  void Signal();
  void Refuse(int status, std::string_view reason);
  // Counts `bytes` as this connection's share of all bodies, instead of what
  // was counted before. Once a body is read whole its exchange counts it.
  void CountBody(size_t bytes);
  // Counts it, and refuses it if all bodies together are too large.
  bool MayGrowTo(size_t body_bytes);
  // Refuses one of `body_bytes` that makes all bodies too large together.
  bool BodiesFit(size_t body_bytes, long long all_bytes);

  void SetActivity(ConnectionTable::Activity activity);

  const ConnectionContext context_;
  const std::unique_ptr<ConnectionTable::Place> place_;
  const std::string peer_;  // its IP address, or "unknown"
  std::function<void()> ended_;
  ClientStream stream_;
  boost::asio::steady_timer signal_;
  boost::asio::steady_timer half_closed_timer_;
  boost::beast::flat_buffer buffer_;
  HttpRequest request_;  // being read
  std::shared_ptr<ConnectionExchange> current_;
  std::optional<HttpResponse> screened_;  // the answer, whatever the body
  std::optional<HttpResponse> refusal_;   // the last answer, unread or not
  size_t counted_body_ = 0;
  bool fresh_ = true;  // no request yet
  bool idle_ = false;  // between two requests
  // The client has half-closed the connection. Nothing is read from then on,
  // since Asio reports the end once alone.
  bool half_closed_ = false;
  bool watching_ = false;
  bool awaits_block_ = false;  // WriteAnswer, and has none
  bool aborted_ = false;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_H_
