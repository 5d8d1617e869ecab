#include "common/http/http_server.h"

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <thread>
#include <unordered_set>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/concurrency/named_thread.h"
#include "common/http/connection.h"
#include "common/http/connection_table.h"
#include "common/http/event_loop.h"
#include "common/http/loop_executor.h"
#include "common/http/tls_identity.h"
#include "common/http/turned_away.h"

namespace sluice::http {
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

// The time that a handshake under way gets to end.
constexpr auto kLastHandshakes = std::chrono::milliseconds(100);

// A client whose SYN is dropped sends another one after a second, and is
// refused then. A socket that is closed would reset those whom it has not
// accepted yet.
void DropNewHandshakes(int listener) {
  constexpr uint32_t kFlagsAt = 13, kSyn = 2;  // of a TCP header
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlagsAt),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kSyn, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
  };
  const sock_fprog filter{std::size(program), program};
  if (::setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                   sizeof(filter)) != 0) {
    LogWarning("connections may be reset at the end: ", std::strerror(errno));
  }
}

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kWaitForRoom = std::chrono::milliseconds(1);
constexpr int kMaxWaitsForRoom = 100;
// Descriptors that are no client's: of the streams to stages, and of all else
// that a process opens.
constexpr int kStageDescriptors = 64;
constexpr int kOtherDescriptors = 64;

// As many of `wanted` connections as there are descriptors for.
int AffordableConnections(int wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  // Besides, those that are turned away and those that make room.
  constexpr int kKeptBack = kStageDescriptors + kOtherDescriptors +
                            kMaxTurnedAway + ConnectionTable::kMaxLeaving;
  if (limit.rlim_cur >= static_cast<rlim_t>(wanted) + kKeptBack) return wanted;
  const int left = std::max(1, static_cast<int>(limit.rlim_cur) - kKeptBack);
  LogWarning("at most ", left, " connections instead of ", wanted,
             ": of this process's ", limit.rlim_cur,
             " descriptors (ulimit -n) ", kKeptBack,
             " are kept back for stages and other uses");
  return left;
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpServerOptions options)
      : options_(std::move(options)),
        table_(options_.limits.connections,
               options_.limits.connections_per_client),
        answers_(options_.limits.all_backlog_bytes) {}

  Status Start() {
    SLUICE_ASSIGN_OR_RETURN(const tcp::endpoint endpoint,
                            ParseEndpoint(options_.listen));
    if (options_.threads < 1) {
      return InvalidArgument("threads must be at least 1, got ",
                             options_.threads);
    }
    if (!options_.tls.certificate.empty() || !options_.tls.key.empty()) {
      SLUICE_ASSIGN_OR_RETURN(tls_, TlsIdentity::Open(options_.tls));
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
    no_memory_answer_ = NoMemoryAnswer(options_);
    return CatchExceptions("HTTP threads", [this] {
      for (size_t i = 0; i < loops_.size(); ++i) {
        const std::function<bool()> repair =
            i == 0 ? [this] { return KeepAccepting(); }
                   : std::function<bool()>([] { return true; });
        loops_[i]->thread = NamedThread(Cat(options_.thread_name, "-", i),
                                        [this, io = &loops_[i]->io, repair] {
                                          RunEventLoop(*io, stats_, repair);
                                        });
      }
    });
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

  void CloseListener(TimePoint deadline) {
    if (loops_.empty() || stopping_) return;
    DropNewHandshakes(acceptor_->native_handle());
    std::this_thread::sleep_until(
        std::min(deadline, Clock::now() + kLastHandshakes));
    net::post(loops_[0]->io, [this] {
      AcceptTheRest();
      is_closed_ = true;
    });
    while (!(is_closed_ && stats_.connections == 0) &&
           Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void Stop() {
    if (loops_.empty() || stopping_.exchange(true)) return;
    draining_ = true;
    net::post(loops_[0]->io, [this] {
      error_code ignored;
      acceptor_->close(ignored);
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
    LoopReserve& reserve = LoopReserve::Of(io);  // before memory is short
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

  // Lives as long as the handler of an accept, which Asio drops without a call
  // where it finds too little memory.
  class Accepting {
   public:
    explicit Accepting(bool& is_accepting) : is_accepting_(&is_accepting) {
      is_accepting = true;
    }
    Accepting(Accepting&& other) noexcept
        : is_accepting_(std::exchange(other.is_accepting_, nullptr)) {}
    ~Accepting() {
      if (is_accepting_ != nullptr) *is_accepting_ = false;
    }

   private:
    bool* is_accepting_;
  };

  void Accept() {
    Loop* loop = loops_[next_loop_++ % loops_.size()].get();
    acceptor_->async_accept(
        loop->io, [this, loop, accepting = Accepting(is_accepting_)](
                      error_code error, tcp::socket socket) mutable {
          { const Accepting ends = std::move(accepting); }
          if (stopping_ || error == net::error::operation_aborted) return;
          if (error) {
            // Out of file descriptors, mostly: waiting beats spinning.
            accept_after_ = Clock::now() + kAcceptPause;
            accept_failures_.Write(LogLevel::kWarning,
                                   "accept failed: ", error.message());
            return;
          }
          AdmitOrRefuse(loop, std::move(socket));
        });
  }

  // Accepts the next connection, unless that is under way. Returns false if it
  // has to wait: memory or descriptors were too short.
  bool KeepAccepting() {
    if (is_accepting_ || stopping_ || !acceptor_->is_open()) return true;
    if (Clock::now() < accept_after_) return false;
    // The next one would be turned away, while room is being made.
    if (table_.IsBehind() && ++waits_for_room_ < kMaxWaitsForRoom) {
      accept_after_ = Clock::now() + kWaitForRoom;
      return false;
    }
    waits_for_room_ = 0;
    if (Guarded([this] { Accept(); })) return true;
    accept_after_ = Clock::now() + kAcceptPause;
    return false;
  }

  void AdmitOrRefuse(Loop* loop, tcp::socket socket) {
    if (Guarded([&] { Admit(loop, socket); }) || !socket.is_open()) return;
    SendNoMemoryAnswer(socket.native_handle(), no_memory_answer_);
  }

  void AcceptTheRest() {
    error_code error;
    acceptor_->cancel(error);
    acceptor_->non_blocking(true, error);
    while (!error) {
      Loop* const loop = loops_[next_loop_++ % loops_.size()].get();
      tcp::socket socket(loop->io);
      acceptor_->accept(socket, error);
      if (!error) AdmitOrRefuse(loop, std::move(socket));
    }
    acceptor_->close(error);
  }

  template <typename Work>
  static bool Guarded(Work&& work) {
    const Status done = CatchAndCount("http_accept", std::forward<Work>(work));
    if (done.ok()) return true;
    CatchAndCount("http_accept", [&] {
      LogWarning("a connection was dropped: ", Message(done));
    }).IgnoreError();
    return false;
  }

  // Takes `socket` over, but where an exception comes before that.
  void Admit(Loop* loop, tcp::socket& socket) {
    error_code error;
    const auto peer = socket.remote_endpoint(error);
    if (error) return;  // it has gone
    auto place = table_.Take(peer.address().to_string());
    if (!place) {
      TurnAway(std::move(socket), options_, turned_away_);
      return;
    }
    ConnectionTable::Place& opened = *place;
    const auto connection = std::make_shared<Connection>(
        std::move(socket),
        ConnectionContext{options_, stats_, draining_, answers_,
                          no_memory_answer_, tls_.get()},
        std::move(place));
    const std::weak_ptr<Connection> weak = connection;
    opened.Open([io = &loop->io, weak] {
      net::post(*io, [weak] {
        if (const auto idle = weak.lock()) idle->MakeRoom();
      });
    });
    net::post(loop->io, [this, loop, connection] {
      if (stopping_) return;
      if (!Guarded([&] { Begin(loop, connection); })) connection->Refuse();
    });
  }

  static void Begin(Loop* loop, const std::shared_ptr<Connection>& connection) {
    loop->connections.insert(connection);
    const std::weak_ptr<Connection> weak = connection;
    connection->Start([loop, weak] {
      if (const auto ended = weak.lock()) loop->connections.erase(ended);
    });
  }

  const HttpServerOptions options_;
  HttpServerStats stats_;
  ConnectionTable table_;
  std::unique_ptr<TlsIdentity> tls_;  // null: plain HTTP
  AnswerMemory answers_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_closed_{false};  // the listener
  std::atomic<int> turned_away_{0};
  int port_ = 0;
  std::string no_memory_answer_;
  // Of the accepting loop, number 0.
  size_t next_loop_ = 0;
  bool is_accepting_ = false;
  int waits_for_room_ = 0;
  TimePoint accept_after_{};
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<tcp::acceptor> acceptor_;  // on loop 0
  LogLimit accept_failures_{3, std::chrono::seconds(60)};
};

StatusOr<bool> IsLoopback(const std::string& listen) {
  SLUICE_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ParseEndpoint(listen));
  return endpoint.address().is_loopback();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    HttpServerOptions options) {
  options.limits.connections =
      AffordableConnections(options.limits.connections);
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
void HttpServer::CloseListener(TimePoint deadline) {
  impl_->CloseListener(deadline);
}
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace sluice::http
