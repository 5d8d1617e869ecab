#ifndef SLUICE_COMMON_HTTP_BODY_DEADLINE_H_
#define SLUICE_COMMON_HTTP_BODY_DEADLINE_H_

#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/http/client_stream.h"
#include "common/http/http_server.h"

namespace sluice::http {

// Ends a read of the stream when a body is late. Unlike the stream's own
// deadline it leaves the connection open, for an answer. On the stream's loop.
class BodyDeadline {
 public:
  // The body begins now. `stream` and `limits` outlive the deadline.
  BodyDeadline(ClientStream& stream, const HttpLimits& limits);
  ~BodyDeadline();
  BodyDeadline(const BodyDeadline&) = delete;
  BodyDeadline& operator=(const BodyDeadline&) = delete;

  // Before a read, with the bytes of the body that are there.
  void Set(size_t bytes);
  // Whether it has ended a read.
  bool is_past() const { return watch_->is_past; }
  // Why, in words for the client.
  std::string Reason() const;

 private:
  using Socket = ClientStream::Socket;
  struct Watch {
    explicit Watch(Socket& of) : socket(of) {}
    Socket& socket;
    TimePoint due{};
    bool is_over = false;  // the socket may be gone
    bool is_past = false;
  };

  const HttpLimits& limits_;
  const TimePoint begin_ = Clock::now();
  boost::asio::steady_timer timer_;
  const std::shared_ptr<Watch> watch_;
  bool is_rate_ = false;  // the rate's time comes before the whole body's
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_BODY_DEADLINE_H_
