#ifndef SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_
#define SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/request_record.h"
#include "services/cli/bench/response_parser.h"
#include "services/cli/bench/stream_chunk.h"
#include "services/cli/sse_reader.h"

namespace sluice::cli {

// Connections to one server that wait for their next request.
struct ConnectionPool {
  boost::asio::io_context& io;
  boost::asio::ip::tcp::resolver::results_type endpoints;
  std::vector<boost::asio::ip::tcp::socket> idle;
};

// One request and its streamed answer. Lives until it ended; every call is on
// the loop's thread.
class StreamExchange : public std::enable_shared_from_this<StreamExchange> {
 public:
  using OnTokens = std::function<void(int)>;
  using OnEnd = std::function<void(RequestRecord)>;

  // `pool` and `head` (the request's header up to Content-Length's value)
  // outlive it. `record` has index and scheduled.
  StreamExchange(ConnectionPool& pool, const std::string& head,
                 LoadRequest request, RequestRecord record);

  // `on_end` is called once, never within Start.
  void Start(Duration timeout, OnTokens on_tokens, OnEnd on_end);
  void Cancel() { End(Outcome::kCancelled, ""); }

 private:
  using Error = boost::system::error_code;

  void Connect();
  void Send();
  void Read();
  void OnBytes(TimePoint at, size_t size);
  void OnBody(TimePoint at);
  // False if the exchange ended with it.
  bool OnEvent(TimePoint at, const std::string& data);
  void OnToken(TimePoint at, const StreamChunk& chunk);
  void OnClosed(const Error& error);
  void Finish();
  void End(Outcome outcome, const std::string& error);

  ConnectionPool& pool_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::string bytes_;  // of the request
  RequestRecord record_;
  OnTokens on_tokens_;
  OnEnd on_end_;
  ResponseParser parser_;
  SseReader events_;
  std::string refusal_;  // the body of another status than 200
  std::array<char, 16384> buffer_;
  int64_t counted_ = 0;  // tokens of all arrivals
  bool reused_ = false;  // the connection had an answer before
  bool done_ = false;    // [DONE] came
  bool finished_ = false;
  bool ended_ = false;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_
