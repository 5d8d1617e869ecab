#ifndef SLUICE_COMMON_HTTP_CONNECTION_IO_H_
#define SLUICE_COMMON_HTTP_CONNECTION_IO_H_

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/optional/optional.hpp>
#include <cstddef>
#include <cstdint>

#include "common/http/connection.h"

// What the two halves of Connection share: connection_read.cc, and the rest.
namespace sluice::http {

// Bytes that a client may send before its answer; beyond them the connection
// reads no more.
inline constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;

// A completion token: errors go to `error` instead of being thrown.
inline auto Redirect(boost::system::error_code& error) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, error);
}

// A string for which no memory is taken before its bytes come: a length that is
// only announced costs nothing.
struct GrowingBody : boost::beast::http::string_body {
  class reader : public boost::beast::http::string_body::reader {
   public:
    using Base = boost::beast::http::string_body::reader;
    using Base::Base;
    void init(const boost::optional<std::uint64_t>& /*length*/,
              boost::system::error_code& error) {
      Base::init(boost::none, error);
    }
  };
};

struct Connection::Parser : boost::beast::http::request_parser<GrowingBody> {};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_IO_H_
