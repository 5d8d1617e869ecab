#include "common/http/http_server.h"

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <thread>
#include <unordered_set>
#include <utility>

#include "common/base/log.h"
#include "common/concurrency/named_thread.h"
#include "common/http/connection.h"
#include "common/http/connection_exchange.h"

namespace sluice::gateway {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

StatusOr<tcp::endpoint> ParseEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    return InvalidArgument("listen address \"", text, "\" has no port");
  }
  unsigned port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port > 65535) {
    return InvalidArgument("listen address \"", text,
                           "\": the port is not 0 to 65535");
  }
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code error;
  const auto address = net::ip::make_address(host, error);
  if (error) {
    return InvalidArgument("listen address \"", text, "\": not an IP address");
  }
  return tcp::endpoint(address, static_cast<uint16_t>(port));
}

// Connections beyond the limit that wait for their client to read why, and
// for how long at most.
constexpr int kMaxTurnedAway = 64;
constexpr auto kTurnAwayTime = std::chrono::seconds(1);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// The answer to a connection that is one too many.
std::string FullAnswer(const HttpServerOptions& options) {
  if (!options.error_response) return "";
  HttpResponse full =
      options.error_response(503, "There are too many connections");
  const std::string body = full.body;
  HttpRequest none;
  none.request_id = RandomId();
  return AnswerHead(std::move(full), none, options.cors,
                    static_cast<long long>(body.size()), false) +
         body;
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

class HttpServer::Impl {
 public:
  explicit Impl(HttpServerOptions options) : options_(std::move(options)) {}

  Status Start() {
    SLUICE_ASSIGN_OR_RETURN(const tcp::endpoint endpoint,
                            ParseEndpoint(options_.listen));
    if (options_.threads < 1) {
      return InvalidArgument("threads must be at least 1, got ",
                             options_.threads);
    }
    for (int i = 0; i < options_.threads; ++i) {
      loops_.push_back(std::make_unique<Loop>());
    }
    acceptor_ = std::make_unique<tcp::acceptor>(loops_[0]->io);
    error_code error;
    acceptor_->open(endpoint.protocol(), error);
    if (!error) {
      acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    }
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(1024, error);
    if (error) {
      return Unavailable("cannot listen on ", options_.listen, ": ",
                         error.message());
    }
    port_ = acceptor_->local_endpoint().port();
    Accept();
    for (size_t i = 0; i < loops_.size(); ++i) {
      loops_[i]->thread =
          NamedThread(Cat("http-", i), [io = &loops_[i]->io] { io->run(); });
    }
    return OkStatus();
  }

  void BeginDrain() {
    if (draining_.exchange(true)) return;
    EachConnection([](Connection& connection) { connection.CloseIfIdle(); });
  }

  bool WaitIdle(TimePoint deadline) const {
    while (stats_.exchanges > stats_.late_exchanges) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  void Stop() {
    if (loops_.empty() || stopping_.exchange(true)) return;
    draining_ = true;
    net::post(loops_[0]->io, [this] {
      error_code ignored;
      acceptor_->close(ignored);
      if (retry_) retry_->cancel();
    });
    EachConnection(
        [](Connection& connection) { connection.Abort(Gone::kShutdown); });
    // A loop without a guard returns once its last connection has ended.
    for (auto& loop : loops_) loop->guard.reset();
    for (auto& loop : loops_) loop->thread.Join();
  }

  int port() const { return port_; }
  const HttpServerStats& stats() const { return stats_; }

 private:
  // An event loop; its connections are touched by its thread alone.
  struct Loop {
    net::io_context io{1};
    net::executor_work_guard<net::io_context::executor_type> guard{
        io.get_executor()};
    std::unordered_set<std::shared_ptr<Connection>> connections;
    NamedThread thread;
  };

  template <typename Function>
  void EachConnection(Function function) {
    for (auto& loop : loops_) {
      net::post(loop->io, [function, loop = loop.get()] {
        const auto connections = loop->connections;
        for (const auto& connection : connections) function(*connection);
      });
    }
  }

  void Accept() {
    Loop* loop = loops_[next_loop_++ % loops_.size()].get();
    acceptor_->async_accept(
        loop->io, [this, loop](error_code error, tcp::socket socket) {
          if (stopping_ || error == net::error::operation_aborted) return;
          if (error) {
            RetryAccept(error);
            return;
          }
          Admit(loop, std::move(socket));
          Accept();
        });
  }

  // Out of file descriptors, mostly: waiting beats spinning.
  void RetryAccept(error_code error) {
    LogWarning("accept failed: ", error.message());
    retry_ = std::make_unique<net::steady_timer>(loops_[0]->io, kAcceptPause);
    retry_->async_wait([this](error_code) {
      if (!stopping_) Accept();
    });
  }

  void Admit(Loop* loop, tcp::socket socket) {
    if (stats_.connections >= options_.limits.connections) {
      TurnAway(std::move(socket));
      return;
    }
    auto connection = std::make_shared<Connection>(
        std::move(socket), ConnectionContext{options_, stats_, draining_});
    net::post(loop->io, [this, loop, connection] {
      if (stopping_) return;
      loop->connections.insert(connection);
      const std::weak_ptr<Connection> weak = connection;
      connection->Start([loop, weak] {
        if (const auto ended = weak.lock()) loop->connections.erase(ended);
      });
    });
  }

  // Says why, and closes once the client did or soon after.
  void TurnAway(tcp::socket socket) {
    error_code error;
    socket.non_blocking(true, error);
    const std::string answer = FullAnswer(options_);
    socket.send(net::buffer(answer), 0, error);
    socket.shutdown(tcp::socket::shutdown_send, error);
    if (turned_away_ >= kMaxTurnedAway) return;
    const auto leaver =
        std::make_shared<Leaver>(std::move(socket), turned_away_);
    net::post(leaver->executor(), [leaver] { leaver->Start(); });
  }

  const HttpServerOptions options_;
  HttpServerStats stats_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> turned_away_{0};
  int port_ = 0;
  size_t next_loop_ = 0;  // of the accepting loop
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<tcp::acceptor> acceptor_;   // on loop 0
  std::unique_ptr<net::steady_timer> retry_;  // on loop 0
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    HttpServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port(); }
const HttpServerStats& HttpServer::stats() const { return impl_->stats(); }
void HttpServer::BeginDrain() { impl_->BeginDrain(); }
bool HttpServer::WaitIdle(TimePoint deadline) const {
  return impl_->WaitIdle(deadline);
}
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace sluice::gateway
