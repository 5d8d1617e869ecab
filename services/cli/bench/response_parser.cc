#include "services/cli/bench/response_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <charconv>
#include <utility>

namespace sluice::cli {
namespace {

namespace http = boost::beast::http;
using Error = boost::beast::error_code;
using View = boost::beast::string_view;

double Number(std::string_view text) {
  double value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

class ResponseParser::Impl : public http::basic_parser<false> {
 public:
  Impl() {
    eager(true);
    body_limit(boost::none);
  }

  int code = 0;
  bool event_stream = false;
  double retry_after = -1;
  std::string body;
  std::string pending;  // bytes that the parser has not consumed

 private:
  void on_request_impl(http::verb, View, View, int, Error&) override {}
  void on_response_impl(int status, View, int, Error&) override {
    code = status;
  }
  void on_field_impl(http::field name, View, View value, Error&) override {
    const std::string_view text(value.data(), value.size());
    if (name == http::field::content_type) {
      event_stream = text.rfind("text/event-stream", 0) == 0;
    } else if (name == http::field::retry_after) {
      retry_after = Number(text);
    }
  }
  void on_header_impl(Error&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, Error&) override {}
  size_t on_body_impl(View bytes, Error&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(uint64_t, View, Error&) override {}
  size_t on_chunk_body_impl(uint64_t, View bytes, Error&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(Error&) override {}
};

ResponseParser::ResponseParser() : impl_(std::make_unique<Impl>()) {}
ResponseParser::~ResponseParser() = default;

Status ResponseParser::Feed(std::string_view bytes) {
  impl_->pending += bytes;
  while (!impl_->pending.empty()) {
    if (impl_->is_done()) {
      return InvalidArgument("bytes after the end of the answer");
    }
    Error error;
    const size_t used = impl_->put(boost::asio::buffer(impl_->pending), error);
    impl_->pending.erase(0, used);
    if (error == http::error::need_more) break;
    if (error) return InvalidArgument("no HTTP answer: ", error.message());
    if (used == 0) break;
  }
  return OkStatus();
}

Status ResponseParser::Close() {
  if (impl_->is_done()) return OkStatus();
  Error error;
  if (impl_->got_some()) {
    impl_->put_eof(error);
    if (!error && impl_->is_done()) return OkStatus();
  }
  return Unavailable("the connection was closed before the end");
}

bool ResponseParser::has_header() const { return impl_->is_header_done(); }
bool ResponseParser::is_done() const { return impl_->is_done(); }
int ResponseParser::status() const { return impl_->code; }
bool ResponseParser::is_event_stream() const { return impl_->event_stream; }
bool ResponseParser::keep_alive() const { return impl_->keep_alive(); }
double ResponseParser::retry_after_s() const { return impl_->retry_after; }

std::string ResponseParser::TakeBody() {
  return std::exchange(impl_->body, {});
}

}  // namespace sluice::cli
