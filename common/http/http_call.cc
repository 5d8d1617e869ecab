#include "common/http/http_call.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace sluice::http {

namespace asio = boost::asio;

Status ConnectionPool::Resolve(const BaseUrl& base) {
  asio::ip::tcp::resolver resolver(io);
  boost::system::error_code error;
  endpoints = resolver.resolve(base.host, base.port, error);
  if (!error) return OkStatus();
  return Unavailable("looking up ", base.host, ": ", error.message());
}

std::string RequestHead(const BaseUrl& base, std::string_view method,
                        std::string_view target, std::string_view accept) {
  std::string head = Cat(method, " ", target, " HTTP/1.1\r\nHost: ", base.host,
                         ":", base.port, "\r\n");
  if (!base.api_key.empty()) {
    head += Cat("Authorization: Bearer ", base.api_key, "\r\n");
  }
  for (const auto& [name, value] : base.headers) {
    head += Cat(name, ": ", value, "\r\n");
  }
  if (!accept.empty()) head += Cat("Accept: ", accept, "\r\n");
  return head +
         "User-Agent: sluice\r\nContent-Type: application/json\r\n"
         "Content-Length: ";
}

HttpCall::HttpCall(ConnectionPool& pool, const std::string& head,
                   const std::string& body)
    : pool_(pool),
      socket_(pool.io),
      timer_(pool.io),
      bytes_(Cat(head, body.size(), "\r\n\r\n", body)) {}

void HttpCall::Start(const Deadline& deadline, Events events) {
  deadline_ = deadline;
  events_ = std::move(events);
  sent_ = Clock::now();
  Await();
  if (pool_.idle.empty()) return Connect();
  socket_ = std::move(pool_.idle.back());
  pool_.idle.pop_back();
  reused_ = true;
  Send();
}

void HttpCall::Await() {
  timer_.expires_after(deadline_.time);
  timer_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->Finish(End::kTimeout, "no answer in time");
  });
}

void HttpCall::Connect() {
  reused_ = false;
  asio::async_connect(
      socket_, pool_.endpoints,
      [self = shared_from_this()](const Error& error, const auto&) {
        if (self->finished_) return;
        if (error) return self->Finish(End::kConnect, error.message());
        Error ignored;
        self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
        self->Send();
      });
}

void HttpCall::Send() {
  sent_ = Clock::now();
  asio::async_write(socket_, asio::buffer(bytes_),
                    [self = shared_from_this()](const Error& error, size_t) {
                      if (self->finished_) return;
                      if (error) return self->OnClosed(error);
                      self->Read();
                    });
}

void HttpCall::Read() {
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](const Error& error, size_t size) {
        const TimePoint at = Clock::now();
        if (self->finished_) return;
        if (error) return self->OnClosed(error);
        self->OnBytes(at, size);
      });
}

void HttpCall::OnBytes(TimePoint at, size_t size) {
  const Status fed = parser_.Feed(std::string_view(buffer_.data(), size));
  ended_ = at;
  if (deadline_.of_each_read) Await();
  if (parser_.has_header()) events_.on_body(parser_.TakeBody(), at);
  if (finished_) return;
  if (!fed.ok()) return Finish(End::kBroken, Message(fed));
  if (parser_.is_done()) return OnWhole();
  Read();
}

void HttpCall::OnClosed(const Error& error) {
  if (reused_ && ended_ == TimePoint()) {
    // The server closed an idle connection: no answer is lost.
    Error ignored;
    socket_.close(ignored);
    return Connect();
  }
  const Status closed = parser_.Close();
  if (!closed.ok() || !parser_.has_header()) {
    return Finish(End::kBroken, error == asio::error::eof ? Message(closed)
                                                          : error.message());
  }
  ended_ = Clock::now();
  events_.on_body(parser_.TakeBody(), ended_);
  if (!finished_) Finish(End::kDone, "");
}

void HttpCall::OnWhole() {
  if (parser_.keep_alive()) {
    pool_.idle.push_back(std::move(socket_));
    socket_ = asio::ip::tcp::socket(pool_.io);
  }
  Finish(End::kDone, "");
}

void HttpCall::Finish(End end, const std::string& error) {
  if (std::exchange(finished_, true)) return;
  timer_.cancel();
  Error ignored;
  socket_.close(ignored);
  if (end != End::kDone) ended_ = Clock::now();
  // Moved first: the callbacks may hold this call's owner.
  const Events events = std::exchange(events_, {});
  events.on_end(end, error);
}

}  // namespace sluice::http
