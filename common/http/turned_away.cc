#include "common/http/turned_away.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "common/http/connection_exchange.h"

namespace sluice::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

constexpr auto kTurnAwayTime = std::chrono::seconds(1);

// `answer` to a connection whose request is not known.
std::string AnswerToUnknown(const HttpServerOptions& options,
                            HttpResponse answer) {
  HttpRequest none;
  none.request_id = RandomId();
  none.arrival = Clock::now();
  WriteError(options.client_format(none), none, answer);
  const std::string body = answer.body;
  return AnswerHead(std::move(answer), none, options,
                    static_cast<long long>(body.size()), false) +
         body;
}

// The answer to a connection that is one too many.
std::string FullAnswer(const HttpServerOptions& options) {
  return AnswerToUnknown(options,
                         TransportError(503, "There are too many connections"));
}

// A connection that was turned away. What its client sends is dropped until it
// closes: a socket closed with unread bytes resets the connection, and the
// client may not have read the answer, nor sent its whole request.
class Leaver : public std::enable_shared_from_this<Leaver> {
 public:
  // `count` is that of all of them.
  Leaver(tcp::socket socket, std::atomic<int>& count)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        count_(count) {
    ++count_;
  }
  ~Leaver() { --count_; }

  tcp::socket::executor_type executor() { return socket_.get_executor(); }

  // On its loop.
  void Start() {
    timer_.expires_after(kTurnAwayTime);
    timer_.async_wait([self = shared_from_this()](error_code) {
      error_code ignored;
      self->socket_.close(ignored);
    });
    Drop();
  }

 private:
  void Drop() {
    socket_.async_read_some(net::buffer(sink_), [self = shared_from_this()](
                                                    error_code error, size_t) {
      if (error) {
        self->timer_.cancel();
      } else {
        self->Drop();
      }
    });
  }

  tcp::socket socket_;
  net::steady_timer timer_;
  std::atomic<int>& count_;
  std::array<char, size_t{64} << 10> sink_;
};

}  // namespace

std::string NoMemoryAnswer(const HttpServerOptions& options) {
  if (!options.tls.certificate.empty()) return "";
  return AnswerToUnknown(options, FailedAnswer(Unavailable("")));
}

void SendNoMemoryAnswer(int socket, std::string_view answer) noexcept {
  // What the client sent is read first: else the close would reset the
  // connection, and the answer with it.
  char sink[4096];
  while (::recv(socket, sink, sizeof(sink), MSG_DONTWAIT) > 0) {
  }
  ::send(socket, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(socket, SHUT_WR);
}

void TurnAway(tcp::socket socket, const HttpServerOptions& options,
              std::atomic<int>& waiting) {
  // Within TLS the words would come after a handshake, which costs more.
  if (!options.tls.certificate.empty()) return;
  error_code error;
  socket.non_blocking(true, error);
  const std::string answer = FullAnswer(options);
  socket.send(net::buffer(answer), 0, error);
  socket.shutdown(tcp::socket::shutdown_send, error);
  if (waiting >= kMaxTurnedAway) return;
  const auto leaver = std::make_shared<Leaver>(std::move(socket), waiting);
  net::post(leaver->executor(), [leaver] { leaver->Start(); });
}

}  // namespace sluice::http
