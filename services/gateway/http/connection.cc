#include "services/gateway/http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <utility>

#include "common/base/cat.h"
#include "services/gateway/http/connection_exchange.h"

// g++ 12 destroys temporaries inside co_await expressions twice. Here every
// operand of a co_await has a name.
namespace sluice::gateway {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// What a client may send ahead of its answer before we stop looking.
constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;
// Up to this size a body is always taken.
constexpr size_t kSmallBody = size_t{64} << 10;
constexpr auto kLingerTime = std::chrono::seconds(5);
constexpr size_t kLingerBytes = size_t{256} << 20;

auto Redirect(error_code& error) {
  return net::redirect_error(net::use_awaitable, error);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return out;
}

std::string_view View(beast::string_view text) {
  return {text.data(), text.size()};
}

// The bytes were wrong, not the connection.
bool IsMalformed(const error_code& error) {
  return error.category() ==
             http::make_error_code(http::error::bad_version).category() &&
         error != http::error::end_of_stream &&
         error != http::error::partial_message;
}

HttpRequest ToHttpRequest(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(View(message.method_string()));
  const std::string_view target = View(message.target());
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != target.npos) {
    request.query = std::string(target.substr(question + 1));
  }
  for (const auto& field : message) {
    request.headers.emplace_back(Lower(View(field.name_string())),
                                 std::string(View(field.value())));
  }
  request.body = std::move(message.body());
  request.request_id = SanitizedRequestId(request.Header("x-request-id"));
  return request;
}

}  // namespace

struct Connection::Parser : http::request_parser<http::string_body> {};

Connection::Connection(net::ip::tcp::socket socket,
                       const ConnectionContext& context)
    : context_(context),
      stream_(std::move(socket)),
      signal_(stream_.get_executor()),
      buffer_(context.options.limits.header_bytes + kMaxPipelinedBytes + 4096) {
  ++context_.stats.connections;
}

Connection::~Connection() {
  CountBody(0);
  --context_.stats.connections;
}

void Connection::CountBody(size_t bytes) {
  context_.stats.body_bytes +=
      static_cast<long long>(bytes) - static_cast<long long>(counted_body_);
  counted_body_ = bytes;
}

void Connection::Start(std::function<void()> ended) {
  error_code ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
  auto self = shared_from_this();
  auto on_end = [self, ended = std::move(ended)](std::exception_ptr) {
    ended();
  };
  auto executor = stream_.get_executor();
  net::co_spawn(executor, Run(), std::move(on_end));
}

void Connection::CloseIfIdle() {
  if (current_ == nullptr) Abort(Gone::kShutdown);
}

void Connection::Abort(Gone why) {
  if (std::exchange(aborted_, true)) return;
  error_code ignored;
  stream_.socket().close(ignored);
  if (const auto exchange = current_) exchange->MarkGone(why);
  Signal();
}

void Connection::Signal() { signal_.cancel(); }

Connection::Nothing Connection::WaitForSignal() {
  error_code error;
  signal_.expires_at(net::steady_timer::time_point::max());
  auto token = Redirect(error);
  co_await signal_.async_wait(token);
}

void Connection::Refuse(int status, std::string_view reason) {
  refusal_ = context_.options.error_response(status, reason);
}

void Connection::RefuseLargeBody() {
  Refuse(413, Cat("The body is larger than ",
                  context_.options.limits.body_bytes, " bytes"));
}

Connection::Nothing Connection::Run() {
  const auto self = shared_from_this();
  bool more = true;
  while (more && !aborted_) {
    auto reading = ReadRequest();
    std::optional<HttpRequest> request = co_await std::move(reading);
    if (!request) break;
    const auto exchange = current_;
    exchange->request() = std::move(*request);
    auto as_exchange = std::shared_ptr<Exchange>(exchange);
    context_.options.handler(std::move(as_exchange));
    if (!exchange->finished() && !exchange->gone()) {
      watching_ = true;
      auto executor = stream_.get_executor();
      auto watch = Watch(exchange);
      net::co_spawn(executor, std::move(watch), net::detached);
    }
    auto writing = WriteAnswer(exchange);
    co_await std::move(writing);
    auto stopping = StopWatch();
    co_await std::move(stopping);
    more = exchange->finished() && !exchange->gone() &&
           exchange->keep_alive() && !context_.draining;
    exchange->Close();
    current_ = nullptr;
    CountBody(0);
  }
  current_ = nullptr;
  CountBody(0);
  if (refusal_) {
    auto refusing = WriteRefusal();
    co_await std::move(refusing);
  }
  auto lingering = Linger();
  co_await std::move(lingering);
}

boost::asio::awaitable<bool> Connection::AwaitFirstByte() {
  if (buffer_.size() > 0) co_return true;
  error_code error;
  auto token = Redirect(error);
  auto space = buffer_.prepare(4096);
  stream_.expires_after(context_.options.limits.idle_time);
  const size_t bytes = co_await stream_.async_read_some(space, token);
  buffer_.commit(bytes);
  co_return !error;
}

boost::asio::awaitable<bool> Connection::AnswerExpectation(
    std::string_view expect) {
  if (expect.empty()) co_return true;
  if (Lower(expect) != "100-continue") {
    Refuse(417, "The only expectation met here is 100-continue");
    co_return false;
  }
  error_code error;
  auto token = Redirect(error);
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  const auto bytes = net::buffer(kContinue.data(), kContinue.size());
  co_await net::async_write(stream_, bytes, token);
  co_return !error;
}

boost::asio::awaitable<bool> Connection::ReadHeader(Parser& parser) {
  const HttpLimits& limits = context_.options.limits;
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser.body_limit(boost::none);  // compared here, for a clear answer
  error_code error;
  auto token = Redirect(error);
  stream_.expires_after(limits.header_time);
  co_await http::async_read_header(stream_, buffer_, parser, token);
  if (error) {
    if (error == http::error::header_limit) {
      Refuse(431,
             Cat("The header is longer than ", limits.header_bytes, " bytes"));
    } else if (IsMalformed(error)) {
      Refuse(400, "The request is not valid HTTP/1.1");
    }
    co_return false;
  }
  const auto length = parser.content_length();
  if (length.has_value() && *length > limits.body_bytes) {
    RefuseLargeBody();
    co_return false;
  }
  // A chunked body may become as large as any.
  CountBody(parser.chunked() ? limits.body_bytes
                             : static_cast<size_t>(length.value_or(0)));
  if (counted_body_ > kSmallBody &&
      context_.stats.body_bytes >
          static_cast<long long>(limits.all_body_bytes)) {
    Refuse(503, "Too many large requests are being read at once");
    co_return false;
  }
  parser.body_limit(limits.body_bytes);
  co_return true;
}

boost::asio::awaitable<bool> Connection::ReadBody(Parser& parser) {
  stream_.expires_after(context_.options.limits.body_time);
  const std::string expect(View(parser.get()[http::field::expect]));
  auto expecting = AnswerExpectation(expect);
  const bool go_on = co_await std::move(expecting);
  if (!go_on) co_return false;
  if (parser.is_done()) co_return true;
  error_code error;
  auto token = Redirect(error);
  co_await http::async_read(stream_, buffer_, parser, token);
  if (error == http::error::body_limit) {
    RefuseLargeBody();
  } else if (IsMalformed(error)) {
    Refuse(400, "The body is not valid HTTP/1.1");
  }
  co_return !error;
}

boost::asio::awaitable<std::optional<HttpRequest>> Connection::ReadRequest() {
  auto first = AwaitFirstByte();
  const bool begun = co_await std::move(first);
  if (!begun) co_return std::nullopt;
  const TimePoint arrival = Clock::now();
  Parser parser;
  auto header = ReadHeader(parser);
  const bool header_read = co_await std::move(header);
  if (!header_read) co_return std::nullopt;
  auto body = ReadBody(parser);
  const bool body_read = co_await std::move(body);
  if (!body_read) co_return std::nullopt;
  const AnswerFraming framing{
      parser.get().version() == 10,
      parser.get().method() == http::verb::head,
      parser.keep_alive() && !context_.draining,
  };
  auto message = parser.release();
  CountBody(message.body().size());
  HttpRequest request = ToHttpRequest(std::move(message));
  request.arrival = arrival;
  HttpRequest empty;
  current_ = std::make_shared<ConnectionExchange>(shared_from_this(),
                                                  std::move(empty), framing);
  co_return request;
}

// Reads ahead while an answer is made: the only way to see that the client
// went away. What it reads belongs to the next request.
Connection::Nothing Connection::Watch(
    std::shared_ptr<ConnectionExchange> exchange) {
  const auto self = shared_from_this();
  error_code error;
  while (!error && !exchange->finished() &&
         buffer_.size() < kMaxPipelinedBytes) {
    auto token = Redirect(error);
    auto space = buffer_.prepare(4096);
    const size_t bytes =
        co_await stream_.socket().async_read_some(space, token);
    buffer_.commit(bytes);
  }
  watching_ = false;
  if (error && error != net::error::operation_aborted) {
    exchange->MarkGone(Gone::kDisconnected);
  }
  Signal();
}

Connection::Nothing Connection::StopWatch() {
  while (watching_) {
    error_code ignored;
    stream_.socket().cancel(ignored);
    auto waiting = WaitForSignal();
    co_await std::move(waiting);
  }
}

Connection::Nothing Connection::WriteAnswer(
    std::shared_ptr<ConnectionExchange> exchange) {
  while (!aborted_) {
    // A client that half-closed still gets an answer that is complete.
    if (exchange->gone() && !exchange->finished()) break;
    if (!exchange->has_block()) {
      if (exchange->finished()) break;
      auto waiting = WaitForSignal();
      co_await std::move(waiting);
      continue;
    }
    const std::string block = exchange->TakeBlock();
    const auto bytes = net::buffer(block);
    error_code error;
    auto token = Redirect(error);
    stream_.expires_after(context_.options.limits.write_time);
    co_await net::async_write(stream_, bytes, token);
    exchange->BlockWritten(block.size());
    if (error) {
      const bool slow = error == beast::error::timeout;
      if (slow) ++context_.stats.slow_readers;
      exchange->MarkGone(slow ? Gone::kSlowReader : Gone::kDisconnected);
      break;
    }
  }
}

Connection::Nothing Connection::WriteRefusal() {
  if (aborted_) co_return;
  HttpResponse response = std::move(*refusal_);
  refusal_.reset();
  std::string text =
      SerializeHead(response, RandomId(),
                    static_cast<long long>(response.body.size()), false);
  text += response.body;
  const auto bytes = net::buffer(text);
  error_code error;
  auto token = Redirect(error);
  stream_.expires_after(context_.options.limits.write_time);
  co_await net::async_write(stream_, bytes, token);
}

// Closing a socket with unread bytes resets it, and the reset may overtake
// the answer: so the client's rest is read and dropped, within bounds.
Connection::Nothing Connection::Linger() {
  if (aborted_) co_return;
  error_code error;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
  if (!error) {
    buffer_.clear();
    stream_.expires_after(kLingerTime);
  }
  std::string sink(size_t{64} << 10, '\0');
  size_t total = 0;
  while (!error && !aborted_ && !context_.draining && total < kLingerBytes) {
    auto token = Redirect(error);
    const auto space = net::buffer(sink);
    total += co_await stream_.async_read_some(space, token);
  }
  stream_.socket().close(error);
}

}  // namespace sluice::gateway
