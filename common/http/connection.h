#ifndef SLUICE_COMMON_HTTP_CONNECTION_H_
#define SLUICE_COMMON_HTTP_CONNECTION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>

#include "common/http/client_stream.h"
#include "common/http/connection_context.h"
#include "common/http/connection_table.h"
#include "common/http/request_reader.h"
#include "common/http/task.h"

namespace sluice::http {

class ConnectionExchange;

// One client connection: reads a request, waits for its answer, and repeats.
// Runs on the socket's loop, in one thread, without locks.
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
  // Closes the connection in place of Start, or after a Start that threw, with
  // the answer for too little memory.
  void Refuse() noexcept;
  // Closes the connection for another client, unless a request is being
  // answered.
  void MakeRoom();
  // Closes the connection if it waits for a request other than its first.
  void CloseIfIdle();
  // Closes the connection; an exchange in progress ends with `why`.
  void Abort(Gone why);

 private:
  friend class ConnectionExchange;
  class Ending;

  Task<void> Run();
  // Reads requests and answers them, until the connection is to be closed.
  Task<void> Serve();
  // Handles an exception of Serve: answers the current request with an error if
  // no byte of its answer is sent.
  void OnException(std::exception_ptr thrown) noexcept;
  // Ends the connection in any state.
  void End() noexcept;

  void Dispatch(const std::shared_ptr<ConnectionExchange>& exchange);
  Task<void> Watch(std::shared_ptr<ConnectionExchange> exchange);
  Task<void> WriteAnswer(std::shared_ptr<ConnectionExchange> exchange);
  // Writes `block`, which outlives the call. A client that takes less than
  // kWriteBytes within the write time gets a timeout.
  Task<boost::system::error_code> WriteBlock(std::string_view block);
  // Writes the part of `block` that the socket takes at once, unless another
  // write comes first. Returns the bytes written.
  size_t WriteNow(std::string_view block);
  Task<void> StopWatch();
  void AskIfStillThere(std::shared_ptr<ConnectionExchange> exchange);
  void WriteErrorOfRefusal();
  Task<void> WriteRefusal();
  Task<void> Linger();
  Task<void> WaitForSignal();
  void Signal();

  const ConnectionContext context_;
  const std::unique_ptr<ConnectionTable::Place> place_;
  std::function<void()> ended_;
  ClientStream stream_;
  boost::asio::steady_timer signal_;
  boost::asio::steady_timer half_closed_timer_;
  RequestReader reader_;
  std::shared_ptr<ConnectionExchange> current_;
  bool watching_ = false;  // Watch runs
  bool awaits_block_ =
      false;  // WriteAnswer waits for the exchange's next block
  bool aborted_ = false;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_H_
