#include "common/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/optional/optional.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

#include "common/base/cat.h"
#include "common/http/body_deadline.h"
#include "common/http/error_answer.h"
#include "common/http/failed_keys.h"

// g++ 12 destroys temporaries inside co_await expressions twice. Here every
// operand of a co_await has a name.
namespace sluice::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

// Read at once, beyond what a header may leave in the buffer.
constexpr size_t kReadBytes = size_t{16} << 10;
// Read at once while no message is begun.
constexpr size_t kIdleReadBytes = 4096;
// Bytes that a client may send before its answer; beyond them the reader reads
// no more.
constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;
// Some clients end a body with a line end that its length leaves out.
constexpr int kMaxEmptyLines = 16;
constexpr std::string_view kLineEnd = "\r\n";
// The time that the body of a refused request gets to come.
constexpr auto kDropTime = std::chrono::seconds(5);

std::string_view View(beast::string_view text) {
  return {text.data(), text.size()};
}

// The bytes were wrong, not the connection.
bool IsMalformed(const error_code& error) {
  return error.category() ==
             beast::http::make_error_code(beast::http::error::bad_version)
                 .category() &&
         error != beast::http::error::end_of_stream &&
         error != beast::http::error::need_more &&
         error != beast::http::error::partial_message;
}

std::string AddressOf(const net::ip::tcp::socket& socket) {
  error_code error;
  const auto peer = socket.remote_endpoint(error);
  return error ? "unknown" : peer.address().to_string();
}

}  // namespace

// A string for which no memory is taken before its bytes come: a length that is
// only announced costs nothing.
struct GrowingBody : beast::http::string_body {
  class reader : public beast::http::string_body::reader {
   public:
    using Base = beast::http::string_body::reader;
    using Base::Base;
    void init(const boost::optional<std::uint64_t>& /*length*/,
              error_code& error) {
      Base::init(boost::none, error);
    }
  };
};

struct RequestReader::Parser : beast::http::request_parser<GrowingBody> {};

RequestReader::RequestReader(const ConnectionContext& context,
                             ClientStream& stream,
                             ConnectionTable::Place* place)
    : context_(context),
      stream_(stream),
      place_(place),
      peer_(AddressOf(stream.socket())),
      buffer_(context.options.limits.header_bytes + kMaxPipelinedBytes +
              kIdleReadBytes),
      incoming_(context.stats) {}

void RequestReader::SetActivity(ConnectionTable::Activity activity) {
  if (place_ != nullptr) place_->Set(activity);
}

void RequestReader::SetPeer(std::string address) {
  const bool passed_on = address != peer_;
  if (place_ != nullptr && (passed_on || is_passed_on_)) {
    place_->SetAddress(address);
  }
  is_passed_on_ = passed_on;
  incoming_.request.peer = std::move(address);
}

void RequestReader::Refuse(int status, std::string_view reason) {
  incoming_.refusal = TransportError(status, reason);
}

Task<bool> RequestReader::Read() {
  HttpRequest& request = incoming_.request = HttpRequest();
  auto dropping = DropBody();
  const bool dropped = co_await std::move(dropping);
  if (!dropped) co_return false;
  auto first = AwaitFirstByte();
  const bool begun = co_await std::move(first);
  if (!begun) co_return false;
  is_fresh_ = false;
  SetActivity(ConnectionTable::Activity::kReading);
  request.arrival = Clock::now();
  request.request_id = RandomId();  // until the client's is known
  SetPeer(peer_);                   // until a proxy tells the client's
  Parser parser;
  auto header = ReadHeader(parser);
  const bool header_read = co_await std::move(header);
  if (!header_read) co_return false;
  if (incoming_.screened) {
    // The answer waits for no body.
    unread_body_ = static_cast<size_t>(parser.content_length().value_or(0));
  } else {
    auto body = ReadBody(parser);
    const bool body_read = co_await std::move(body);
    if (!body_read) co_return false;
  }
  incoming_.framing = {
      parser.get().version() == 10,
      parser.get().method() == beast::http::verb::head,
      parser.keep_alive() && context_.options.keep_alive && !context_.draining,
  };
  request.body = std::move(parser.get().body());
  incoming_.body_share.Set(request.body.size());
  SetActivity(ConnectionTable::Activity::kAnswering);
  co_return true;
}

bool RequestReader::can_read_ahead() const {
  return !is_half_closed_ && buffer_.size() < kMaxPipelinedBytes;
}

Task<error_code> RequestReader::ReadAhead() {
  error_code error;
  auto token = Redirect(error);
  auto space = buffer_.prepare(kIdleReadBytes);
  size_t bytes = 0;
  // The stream's deadlines belong to the answer's writes.
  if (stream_.tls() == nullptr) {
    bytes = co_await stream_.socket().async_read_some(space, token);
  } else {
    // A write under way has its own.
    stream_.expires_never();
    bytes = co_await stream_.async_read_some(space, token);
  }
  buffer_.commit(bytes);
  if (error == net::error::eof || error == net::ssl::error::stream_truncated) {
    error.clear();
    is_half_closed_ = true;
  }
  co_return error;
}

void RequestReader::ParseBuffered(Parser& parser, error_code& error) {
  size_t used = 0;
  if (buffer_.size() > 0) {
    used = parser.put(buffer_.data(), error);
    buffer_.consume(used);
  }
  // The caller counts a body as it grows: it sees the used bytes first.
  if (used > 0 && error == beast::http::error::need_more) error.clear();
  if (!error && used == 0) error = beast::http::error::need_more;
}

// Parses here and not in Beast's own operations, which run outside the
// coroutine: exceptions of the parser must reach the coroutine.
Task<error_code> RequestReader::ReadSome(Parser& parser) {
  error_code error;
  ParseBuffered(parser, error);
  if (error != beast::http::error::need_more || is_half_closed_)
    co_return error;
  auto reading = ReadMore();
  error = co_await std::move(reading);
  co_return error;
}

Task<error_code> RequestReader::ReadMore() {
  error_code error;
  auto token = Redirect(error);
  auto space = buffer_.prepare(kReadBytes);
  const size_t bytes = co_await stream_.async_read_some(space, token);
  buffer_.commit(bytes);
  co_return error;
}

Task<bool> RequestReader::DropBody() {
  const auto drop = [this] {
    const size_t dropped = std::min(unread_body_, buffer_.size());
    buffer_.consume(dropped);
    unread_body_ -= dropped;
  };
  drop();
  if (unread_body_ == 0) co_return true;
  SetActivity(ConnectionTable::Activity::kDone);
  stream_.expires_after(kDropTime);
  error_code error;
  while (!error && unread_body_ > 0) {
    auto reading = ReadMore();
    error = co_await std::move(reading);
    drop();
  }
  co_return unread_body_ == 0;
}

bool RequestReader::SkipEmptyLines() {
  const auto begin = [this] {
    return std::string_view(static_cast<const char*>(buffer_.data().data()),
                            std::min(buffer_.size(), kLineEnd.size()));
  };
  while (empty_lines_ < kMaxEmptyLines && begin() == kLineEnd) {
    buffer_.consume(kLineEnd.size());
    ++empty_lines_;
  }
  const bool half_a_line = empty_lines_ < kMaxEmptyLines && begin() == "\r";
  return buffer_.size() > 0 && !half_a_line;
}

Task<bool> RequestReader::Handshake() {
  error_code error;
  auto token = Redirect(error);
  const auto as_server = net::ssl::stream_base::server;
  co_await stream_.tls()->async_handshake(as_server, token);
  co_return !error;
}

Task<bool> RequestReader::AwaitFirstByte() {
  const HttpLimits& limits = context_.options.limits;
  empty_lines_ = 0;
  if (SkipEmptyLines()) co_return true;
  if (is_half_closed_) co_return false;
  if (!is_fresh_) {
    SetPeer(peer_);
    SetActivity(ConnectionTable::Activity::kIdle);
  }
  stream_.expires_after(is_fresh_ ? limits.header_time : limits.idle_time);
  if (is_fresh_ && stream_.tls() != nullptr) {
    auto handshake = Handshake();
    const bool spoken = co_await std::move(handshake);
    if (!spoken) co_return false;
  }
  error_code error;
  bool is_there = false;
  is_idle_ = !is_fresh_;
  while (!error && !is_there) {
    auto token = Redirect(error);
    auto space = buffer_.prepare(kIdleReadBytes);
    const size_t bytes = co_await stream_.async_read_some(space, token);
    buffer_.commit(bytes);
    is_there = SkipEmptyLines();
  }
  is_idle_ = false;
  co_return is_there;
}

Task<bool> RequestReader::ReadHeader(Parser& parser) {
  const HttpLimits& limits = context_.options.limits;
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser.body_limit(boost::none);  // compared here, for a clear answer
  error_code error;
  stream_.expires_after(limits.header_time);
  while (!error && !parser.is_header_done()) {
    auto reading = ReadSome(parser);
    error = co_await std::move(reading);
  }
  if (error) {
    if (error == beast::http::error::header_limit) {
      Refuse(431,
             Cat("The header is longer than ", limits.header_bytes, " bytes"));
    } else if (IsMalformed(error)) {
      Refuse(400, "The request is not valid HTTP/1.1");
    }
    co_return false;
  }
  co_return AcceptHeader(parser) && AcceptBodySize(parser);
}

bool RequestReader::AcceptHeader(const Parser& parser) {
  HttpRequest& request = incoming_.request;
  request.method = std::string(View(parser.get().method_string()));
  for (const auto& field : parser.get()) {
    request.headers.emplace_back(AsciiLower(View(field.name_string())),
                                 std::string(View(field.value())));
  }
  request.request_id = SanitizedRequestId(request.Header("x-request-id"));
  request.traceparent = SanitizedTraceparent(request.Header("traceparent"));
  // First: the form of a refusal depends on the path.
  if (!ParseTarget(View(parser.get().target()), request)) {
    Refuse(400, "The request's target is not a valid path");
    return false;
  }
  if (!AcceptFraming(parser.get().version())) return false;
  SetPeer(context_.options.proxies.ClientOf(request.headers, peer_));
  if (context_.options.screen)
    incoming_.screened = context_.options.screen(request);
  // `screen` may know the client better than the connection does.
  request.client = request.tenant.empty()
                       ? Cat("addr:", ClientOfAddress(request.peer))
                       : Cat("key:", request.tenant);
  return true;
}

bool RequestReader::AcceptFraming(unsigned version) {
  int hosts = 0;
  int encodings = 0;
  for (const auto& [name, value] : incoming_.request.headers) {
    if (name == "host" && ++hosts > 1) {
      Refuse(400, "The request has several Host headers");
      return false;
    }
    // HTTP/1.0 knows no codings: another reader would end the body elsewhere.
    if (name == "transfer-encoding" && version < 11) {
      Refuse(400, "An HTTP/1.0 request cannot have a Transfer-Encoding");
      return false;
    }
    // The last coding alone frames the body; all of them encode it.
    if (name == "transfer-encoding" &&
        (++encodings > 1 || AsciiLower(value) != "chunked")) {
      Refuse(501, "The only Transfer-Encoding read here is chunked");
      return false;
    }
    if (name == "content-encoding" && !value.empty() &&
        AsciiLower(value) != "identity") {
      Refuse(415, "The body must have no Content-Encoding");
      return false;
    }
  }
  if (version >= 11 && hosts == 0) {
    Refuse(400, "An HTTP/1.1 request needs a Host header");
    return false;
  }
  return true;
}

bool RequestReader::AcceptBodySize(const Parser& parser) {
  const HttpLimits& limits = context_.options.limits;
  const auto length = parser.content_length();
  // An announced body takes nothing: bodies are counted as they grow.
  const size_t size = static_cast<size_t>(length.value_or(0));
  // A client that expects an interim answer may keep its body back.
  const bool expects = size > 0 && !incoming_.request.Header("expect").empty();
  if (incoming_.screened &&
      (parser.chunked() || size > kSmallBody || expects)) {
    incoming_.refusal = std::exchange(incoming_.screened, std::nullopt);
    return false;
  }
  if (size > limits.body_bytes) {
    Refuse(413, Cat("The body has ", size, " bytes, the limit is ",
                    limits.body_bytes, " bytes"));
    return false;
  }
  return BodiesFit(size,
                   context_.stats.body_bytes + static_cast<long long>(size));
}

bool RequestReader::BodiesFit(size_t body_bytes, long long all_bytes) {
  if (BodyFits(context_, body_bytes, all_bytes)) return true;
  Refuse(503, "Too many large requests are being read at once");
  return false;
}

Task<bool> RequestReader::AnswerExpectation(std::string_view expect) {
  if (expect.empty()) co_return true;
  if (AsciiLower(expect) != "100-continue") {
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

Task<bool> RequestReader::ReadBody(Parser& parser) {
  const HttpLimits& limits = context_.options.limits;
  parser.body_limit(limits.body_bytes);
  stream_.expires_after(limits.body_time);
  if (parser.is_done()) co_return true;
  if (parser.get().version() >= 11) {  // HTTP/1.0 has no interim answers
    auto expecting = AnswerExpectation(incoming_.request.Header("expect"));
    const bool go_on = co_await std::move(expecting);
    if (!go_on) co_return false;
  }
  stream_.expires_never();
  error_code error;
  parser.eager(true);
  std::optional<BodyDeadline> deadline;
  while (!error && !parser.is_done()) {
    ParseBuffered(parser, error);
    const size_t size = parser.get().body().size();
    incoming_.body_share.Set(size);
    if (!BodiesFit(size, context_.stats.body_bytes)) co_return false;
    if (error != beast::http::error::need_more || is_half_closed_) continue;
    if (!deadline) deadline.emplace(stream_, limits);
    deadline->Set(size);
    auto reading = ReadMore();
    error = co_await std::move(reading);
    if (deadline->is_past()) {
      Refuse(408, deadline->Reason());
      co_return false;
    }
  }
  if (error == beast::http::error::body_limit) {
    Refuse(413, Cat("The body has more than the limit of ", limits.body_bytes,
                    " bytes"));
  } else if (IsMalformed(error)) {
    Refuse(400, "The body is not valid HTTP/1.1");
  }
  co_return !error;
}

}  // namespace sluice::http
