#ifndef SLUICE_COMMON_HTTP_RESPONSE_PARSER_H_
#define SLUICE_COMMON_HTTP_RESPONSE_PARSER_H_

#include <boost/beast/http/basic_parser.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "common/http/message.h"

namespace sluice::http {

// Parses the bytes of one HTTP/1.1 response as they arrive; body bytes are
// available before their chunk ends. Threadless.
class ResponseParser : private boost::beast::http::basic_parser<false> {
 public:
  // `keeps_headers`: headers() has them, else it is empty.
  explicit ResponseParser(bool keeps_headers = false);

  // INVALID_ARGUMENT for bytes that are no HTTP, or come after the end.
  Status Feed(std::string_view bytes);
  // The peer closed the connection: the end of some bodies, else an error.
  Status Close();

  bool has_header() const { return is_header_done(); }
  using basic_parser::is_done;
  using basic_parser::keep_alive;
  // Valid after the header:
  int status() const { return status_; }
  const std::string& content_type() const { return content_type_; }
  bool is_event_stream() const {
    return content_type_.starts_with("text/event-stream");
  }
  double retry_after_s() const { return retry_after_s_; }  // -1: none
  const HttpHeaders& headers() const { return headers_; }  // lower-case names

  // Returns the bytes of the body since the last call.
  std::string TakeBody() { return std::exchange(body_, {}); }

 private:
  using Error = boost::beast::error_code;
  using View = boost::beast::string_view;
  using Verb = boost::beast::http::verb;
  using Field = boost::beast::http::field;

  void on_request_impl(Verb, View, View, int, Error&) override {}
  void on_response_impl(int status, View, int, Error&) override {
    status_ = status;
  }
  void on_field_impl(Field name, View text, View value, Error&) override;
  void on_header_impl(Error&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, Error&) override {}
  size_t on_body_impl(View bytes, Error&) override;
  void on_chunk_header_impl(uint64_t, View, Error&) override {}
  size_t on_chunk_body_impl(uint64_t, View bytes, Error& error) override {
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(Error&) override {}

  int status_ = 0;
  std::string content_type_;
  double retry_after_s_ = -1;
  const bool keeps_headers_;
  HttpHeaders headers_;
  std::string body_;
  std::string pending_;  // bytes that basic_parser did not consume
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_RESPONSE_PARSER_H_
