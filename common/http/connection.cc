#include "common/http/connection.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/http/connection_exchange.h"
#include "common/http/turned_away.h"

// g++ 12 destroys temporaries inside co_await expressions twice. Here every
// operand of a co_await has a name.
namespace sluice::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = net::ip::tcp;

constexpr auto kLingerTime = std::chrono::seconds(5);
constexpr size_t kLingerBytes = size_t{256} << 20;
// A block is written in parts of this size, each with its own deadline.
constexpr size_t kWriteBytes = size_t{64} << 10;
// A block up to this size, a token's event, is written where it is made.
constexpr size_t kWriteNowBytes = size_t{4} << 10;
// What the kernel may hold beyond what the client has room for. Otherwise it
// takes megabytes, and then no more until a third of them is gone: a slow
// reader would look like one that stands still.
constexpr int kUnsentBytes = 128 << 10;
// What was sent and not acknowledged for so long ends the connection: as long
// as its keepalive takes to notice that, while nothing is sent.
constexpr int kUserTimeoutMs = 60'000;

// The connection is reset, or closed both ways: not merely half-closed.
bool IsBroken(int socket) {
  pollfd one{socket, 0, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & (POLLERR | POLLHUP)) != 0;
}

// A peer that vanished without a word is noticed after about a minute.
void SetSocketOptions(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(tcp::socket::keep_alive(true), ignored);
  const int fd = socket.native_handle();
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  set(TCP_NOTSENT_LOWAT, kUnsentBytes);
  set(TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// What a coroutine of a connection threw, counted.
Status Caught(const std::exception_ptr& thrown) {
  return CatchAndCount("http_connection",
                       [&] { std::rethrow_exception(thrown); });
}

}  // namespace

// Ends the connection with the coroutine that holds it, also if an exception
// outside the coroutine destroys that.
class Connection::Ending {
 public:
  explicit Ending(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  ~Ending() { connection_->End(); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  const std::shared_ptr<Connection> connection_;
};

Connection::Connection(tcp::socket socket, const ConnectionContext& context,
                       std::unique_ptr<ConnectionTable::Place> place)
    : context_(context),
      place_(std::move(place)),
      stream_(std::move(socket),
              context.tls == nullptr ? nullptr : context.tls->Current()),
      signal_(stream_.get_executor()),
      half_closed_timer_(stream_.get_executor()),
      reader_(context, stream_, place_.get()) {
  ++context_.stats.connections;
}

Connection::~Connection() { --context_.stats.connections; }

void Connection::Start(std::function<void()> ended) {
  ended_ = std::move(ended);
  SetSocketOptions(stream_.socket());
  auto on_end = [](std::exception_ptr thrown) {
    if (thrown) LogError("a connection was dropped: ", Message(Caught(thrown)));
  };
  try {
    Spawn(stream_.get_executor(), Run(), std::move(on_end));
  } catch (...) {
    End();
    throw;
  }
}

void Connection::Refuse() noexcept {
  if (stream_.socket().is_open() && stream_.tls() == nullptr) {
    SendNoMemoryAnswer(stream_.socket().native_handle(),
                       context_.no_memory_answer);
  }
  End();
}

void Connection::MakeRoom() {
  if (current_ || aborted_) return;
  ++context_.stats.evictions;
  Abort(Gone::kShutdown);
}

void Connection::CloseIfIdle() {
  if (reader_.is_idle()) Abort(Gone::kShutdown);
}

void Connection::Abort(Gone why) {
  if (std::exchange(aborted_, true)) return;
  error_code ignored;
  stream_.socket().close(ignored);
  if (const auto exchange = current_) exchange->MarkGone(why);
  Signal();
}

void Connection::Signal() { signal_.cancel(); }

Task<void> Connection::WaitForSignal() {
  error_code error;
  signal_.expires_at(net::steady_timer::time_point::max());
  auto token = Redirect(error);
  co_await signal_.async_wait(token);
}

Task<void> Connection::Run() {
  const Ending ending(shared_from_this());
  std::exception_ptr thrown;
  auto serving = Serve();
  try {
    co_await std::move(serving);
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown) OnException(std::exchange(thrown, nullptr));
  current_ = nullptr;
  reader_.incoming().body_share.Set(0);
  // A last answer keeps no other client out.
  if (!aborted_ && place_) place_->Set(ConnectionTable::Activity::kDone);
  if (reader_.incoming().refusal) {
    auto refusing = WriteRefusal();
    co_await std::move(refusing);
  }
  auto lingering = Linger();
  co_await std::move(lingering);
}

Task<void> Connection::Serve() {
  bool more = true;
  while (more && !aborted_) {
    auto reading = reader_.Read();
    const bool is_whole = co_await std::move(reading);
    if (!is_whole) {
      WriteErrorOfRefusal();
      break;
    }
    const auto exchange = std::make_shared<ConnectionExchange>(
        shared_from_this(), reader_.incoming());
    current_ = exchange;
    Dispatch(exchange);
    if (!exchange->finished() && !exchange->gone()) {
      watching_ = true;
      auto watch = Watch(exchange);
      auto on_end = [exchange](std::exception_ptr thrown) {
        if (thrown) exchange->Fail(Caught(thrown));
      };
      Spawn(stream_.get_executor(), std::move(watch), std::move(on_end));
    }
    auto writing = WriteAnswer(exchange);
    co_await std::move(writing);
    auto stopping = StopWatch();
    co_await std::move(stopping);
    more = exchange->finished() && !exchange->gone() &&
           exchange->keep_alive() && !context_.draining;
    exchange->Close();
    current_ = nullptr;
  }
}

void Connection::OnException(std::exception_ptr thrown) noexcept {
  const Status told = CatchAndCount("http_connection", [&] {
    const Status why = Caught(thrown);
    IncomingRequest& incoming = reader_.incoming();
    const HttpRequest& request =
        current_ ? current_->request() : incoming.request;
    LogError("request ", request.request_id, ": ", Message(why));
    if (current_ == nullptr) {
      incoming.refusal = FailedAnswer(why);
      WriteErrorOfRefusal();
    }
  });
  if (current_ == nullptr && !told.ok() && stream_.tls() == nullptr) {
    SendNoMemoryAnswer(stream_.socket().native_handle(),
                       context_.no_memory_answer);
  }
  // The client may have any part of an answer that was begun.
  if (current_ != nullptr || !told.ok()) Abort(Gone::kFailed);
}

void Connection::End() noexcept {
  const Status ended = CatchAndCount("http_connection", [this] {
    error_code ignored;
    stream_.socket().close(ignored);
    aborted_ = true;
    if (const auto exchange = std::exchange(current_, nullptr)) {
      exchange->MarkGone(Gone::kFailed);
      exchange->Close();
    }
  });
  if (const auto callback = std::exchange(ended_, nullptr)) callback();
}

void Connection::Dispatch(const std::shared_ptr<ConnectionExchange>& exchange) {
  const Status handled = CatchAndCount("http_handler", [&] {
    auto& screened = reader_.incoming().screened;
    if (auto refused = std::exchange(screened, std::nullopt)) {
      exchange->Send(*std::move(refused));
    } else if (auto preflight =
                   context_.options.cors.Preflight(exchange->request())) {
      exchange->set_route("preflight");
      exchange->Send(*std::move(preflight));
    } else {
      context_.options.handler(exchange);
    }
  });
  if (!handled.ok()) exchange->Fail(handled);
}

// Reads ahead while an answer is made: the only way to see that the client
// went away. The bytes belong to the next request. A client that closed its
// half may still read: it counts as gone once the connection is broken.
Task<void> Connection::Watch(std::shared_ptr<ConnectionExchange> exchange) {
  const auto self = shared_from_this();
  // Watch has ended, with or without an error.
  const auto over = [](Connection* connection) {
    connection->watching_ = false;
    connection->Signal();
  };
  const std::unique_ptr<Connection, decltype(over)> watch(this, over);
  error_code error;
  while (!error && !exchange->finished() && reader_.can_read_ahead()) {
    auto reading = reader_.ReadAhead();
    error = co_await std::move(reading);
  }
  if (reader_.is_half_closed() && !exchange->can_probe()) {
    error = net::error::connection_reset;
  } else if (reader_.is_half_closed()) {
    AskIfStillThere(exchange);
  }
  if (!error && !exchange->finished() && !aborted_) {
    auto token = Redirect(error);
    const auto broken = tcp::socket::wait_error;
    co_await stream_.socket().async_wait(broken, token);
    // Urgent data ends the wait too.
    if (!error && !aborted_ && IsBroken(stream_.socket().native_handle())) {
      error = net::error::connection_reset;
    }
  }
  if (error && error != net::error::operation_aborted) {
    exchange->MarkGone(Gone::kDisconnected);
  }
}

// A client that closed its half and a client that closed both look alike until
// a byte is sent: the side of the latter answers the byte with a reset.
void Connection::AskIfStillThere(std::shared_ptr<ConnectionExchange> exchange) {
  half_closed_timer_.expires_after(context_.options.limits.half_closed_time);
  half_closed_timer_.async_wait(
      [self = shared_from_this(), exchange](error_code error) {
        const Status asked = CatchAndCount("http_timer", [&] {
          if (error || !exchange->SendProbe()) return;
          self->AskIfStillThere(exchange);
        });
        if (!asked.ok()) exchange->Fail(asked);
      });
}

Task<void> Connection::StopWatch() {
  half_closed_timer_.cancel();
  while (watching_) {
    error_code ignored;
    stream_.socket().cancel(ignored);
    auto waiting = WaitForSignal();
    co_await std::move(waiting);
  }
}

Task<void> Connection::WriteAnswer(
    std::shared_ptr<ConnectionExchange> exchange) {
  while (!aborted_) {
    if (exchange->gone() && !exchange->finished()) break;
    if (exchange->blocks().is_empty()) {
      if (exchange->finished()) break;
      awaits_block_ = true;
      auto waiting = WaitForSignal();
      co_await std::move(waiting);
      awaits_block_ = false;
      continue;
    }
    const BlockQueue::Block block = exchange->blocks().Take();
    const int64_t begin_ns = MonotonicNanos();
    auto writing = WriteBlock(block.bytes);
    const error_code error = co_await std::move(writing);
    if (!error) {
      exchange->blocks().TellWritten(block.queued_ns,
                                     {begin_ns, MonotonicNanos()});
    }
    if (error) {
      const bool slow = error == beast::error::timeout;
      exchange->MarkGone(slow ? Gone::kSlowReader : Gone::kDisconnected);
      break;
    }
  }
}

size_t Connection::WriteNow(std::string_view block) {
  // TLS has a state of its own, and what is large has a deadline.
  if (!awaits_block_ || aborted_ || stream_.tls() != nullptr ||
      block.size() > kWriteNowBytes) {
    return 0;
  }
  const ssize_t sent = ::send(stream_.socket().native_handle(), block.data(),
                              block.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

Task<error_code> Connection::WriteBlock(std::string_view block) {
  error_code error;
  while (!error && !block.empty()) {
    const size_t size = std::min(block.size(), kWriteBytes);
    const auto bytes = net::buffer(block.data(), size);
    auto token = Redirect(error);
    stream_.expires_after(context_.options.limits.write_time);
    co_await net::async_write(stream_, bytes, token);
    if (!error && current_ != nullptr) current_->BlockWritten(size);
    block.remove_prefix(size);
  }
  co_return error;
}

void Connection::WriteErrorOfRefusal() {
  IncomingRequest& incoming = reader_.incoming();
  if (!incoming.refusal) return;
  WriteError(context_.options.client_format(incoming.request), incoming.request,
             *incoming.refusal);
}

Task<void> Connection::WriteRefusal() {
  if (aborted_) co_return;
  const HttpRequest& request = reader_.incoming().request;
  HttpResponse response =
      *std::exchange(reader_.incoming().refusal, std::nullopt);
  const std::string body = std::move(response.body);
  if (context_.options.observer) {
    const ApiError error = response.error.value_or(ApiError{.type = ""});
    context_.options.observer({request.method, "other", response.status,
                               Clock::now() - request.arrival, request.tenant,
                               error.type, 0, body.size(),
                               error.code.value_or(""), &request});
  }
  const std::string text =
      AnswerHead(std::move(response), request, context_.options,
                 static_cast<long long>(body.size()), false) +
      (request.method == "HEAD" ? std::string() : body);
  const auto bytes = net::buffer(text);
  error_code error;
  auto token = Redirect(error);
  stream_.expires_after(context_.options.limits.write_time);
  co_await net::async_write(stream_, bytes, token);
}

// A socket that is closed with unread bytes resets its connection, and the
// reset may overtake the answer. So Linger reads and drops the client's other
// bytes, within bounds.
Task<void> Connection::Linger() {
  if (aborted_) co_return;
  error_code error;
  if (stream_.tls() != nullptr) {
    // Tells the client that this is the end, and not a cut.
    auto token = Redirect(error);
    stream_.expires_after(kLingerTime);
    co_await stream_.tls()->async_shutdown(token);
    error.clear();
  }
  stream_.socket().shutdown(tcp::socket::shutdown_send, error);
  if (!error) stream_.expires_after(kLingerTime);
  std::string sink(size_t{64} << 10, '\0');
  size_t total = 0;
  while (!error && !reader_.is_half_closed() && !aborted_ &&
         total < kLingerBytes) {
    auto token = Redirect(error);
    const auto space = net::buffer(sink);
    total += co_await stream_.tcp().async_read_some(space, token);
  }
  stream_.socket().close(error);
}

}  // namespace sluice::http
