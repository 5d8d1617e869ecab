#ifndef SLUICE_COMMON_HTTP_CLIENT_STREAM_H_
#define SLUICE_COMMON_HTTP_CLIENT_STREAM_H_

#include <boost/asio/async_result.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace sluice::http {

// A client's byte stream: its socket, plain or with TLS. Used on the
// connection's loop, with at most one read and one write at a time. Deadlines
// are those of Beast's tcp_stream.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using Socket = boost::asio::ip::tcp::socket;
  using Context = boost::asio::ssl::context;
  using Tls = boost::asio::ssl::stream<boost::beast::tcp_stream&>;
  using ErrorCode = boost::system::error_code;

  // `context` null: no TLS.
  ClientStream(Socket socket, std::shared_ptr<Context> context)
      : tcp_(std::move(socket)), context_(std::move(context)) {
    if (context_) tls_.emplace(tcp_, *context_);
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  Socket& socket() { return tcp_.socket(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  // Null without TLS. The handshake comes before all else.
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }

  // Sets the deadline of the reads and writes that begin later.
  template <typename Duration>
  void expires_after(Duration duration) {
    tcp_.expires_after(duration);
  }
  void expires_never() { tcp_.expires_never(); }

  template <typename Buffers, typename Token>
  BOOST_BEAST_ASYNC_RESULT2(Token)
  async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
        [](auto handler, ClientStream* self, auto into) {
          if (self->tls_) {
            self->tls_->async_read_some(into, std::move(handler));
          } else {
            self->tcp_.async_read_some(into, std::move(handler));
          }
        },
        token, this, buffers);
  }

  template <typename Buffers, typename Token>
  BOOST_BEAST_ASYNC_RESULT2(Token)
  async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
        [](auto handler, ClientStream* self, auto from) {
          if (self->tls_) {
            self->tls_->async_write_some(from, std::move(handler));
          } else {
            self->tcp_.async_write_some(from, std::move(handler));
          }
        },
        token, this, buffers);
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::shared_ptr<Context> context_;  // outlives tls_
  std::optional<Tls> tls_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CLIENT_STREAM_H_
