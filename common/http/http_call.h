#ifndef SLUICE_COMMON_HTTP_HTTP_CALL_H_
#define SLUICE_COMMON_HTTP_HTTP_CALL_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/http/http_client.h"
#include "common/http/response_parser.h"

namespace sluice::http {

// Idle connections to one server.
struct ConnectionPool {
  boost::asio::io_context& io;
  boost::asio::ip::tcp::resolver::results_type endpoints;
  std::vector<boost::asio::ip::tcp::socket> idle;

  // UNAVAILABLE for an unknown host name.
  Status Resolve(const BaseUrl& base);
};

// Returns a request's bytes up to the value of Content-Length. `accept` may be
// empty.
std::string RequestHead(const BaseUrl& base, std::string_view method,
                        std::string_view target, std::string_view accept);

// One request and its answer over a connection of a pool, which keeps the
// connection if the server does. Lives until its end; every call is on the
// loop's thread.
class HttpCall : public std::enable_shared_from_this<HttpCall> {
 public:
  enum class End { kDone, kConnect, kBroken, kTimeout, kCancelled };
  struct Events {
    // Takes bytes of the body, maybe none; the header is read by then.
    std::function<void(std::string_view, TimePoint)> on_body;
    // Runs once, never within Start. `error` tells what broke.
    std::function<void(End, const std::string& error)> on_end;
  };
  struct Deadline {
    Duration time;
    bool of_each_read = false;  // per read; else for the whole call
  };

  // `pool` outlives the call. `head` is RequestHead's.
  HttpCall(ConnectionPool& pool, const std::string& head,
           const std::string& body);

  void Start(const Deadline& deadline, Events events);
  void Cancel() { Finish(End::kCancelled, ""); }

  const ResponseParser& response() const { return parser_; }
  TimePoint sent() const { return sent_; }  // the first byte's time
  TimePoint ended() const {
    return ended_;
  }  // the last byte's time; 0: none came
  bool new_connection() const { return !reused_; }

 private:
  using Error = boost::system::error_code;

  void Await();
  void Connect();
  void Send();
  void Read();
  void OnBytes(TimePoint at, size_t size);
  void OnClosed(const Error& error);
  void OnWhole();
  void Finish(End end, const std::string& error);

  ConnectionPool& pool_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  const std::string bytes_;  // of the request
  Deadline deadline_{};
  Events events_;
  ResponseParser parser_;
  TimePoint sent_, ended_;
  std::array<char, 16384> buffer_;
  bool reused_ = false;  // an earlier request used the connection
  bool finished_ = false;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_HTTP_CALL_H_
