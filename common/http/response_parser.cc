#include "common/http/response_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <charconv>

namespace sluice::http {

ResponseParser::ResponseParser(bool keeps_headers)
    : keeps_headers_(keeps_headers) {
  eager(true);
  body_limit(boost::none);
}

void ResponseParser::on_field_impl(Field name, View text, View value, Error&) {
  if (keeps_headers_) {
    headers_.emplace_back(AsciiLower({text.data(), text.size()}),
                          std::string(value.data(), value.size()));
  }
  if (name == Field::content_type) {
    content_type_.assign(value.data(), value.size());
  } else if (name == Field::retry_after) {
    std::from_chars(value.data(), value.data() + value.size(), retry_after_s_);
  }
}

size_t ResponseParser::on_body_impl(View bytes, Error&) {
  body_.append(bytes.data(), bytes.size());
  return bytes.size();
}

Status ResponseParser::Feed(std::string_view bytes) {
  pending_ += bytes;
  while (!pending_.empty()) {
    if (is_done()) return InvalidArgument("bytes after the end of the answer");
    Error error;
    const size_t used = put(boost::asio::buffer(pending_), error);
    pending_.erase(0, used);
    if (error == boost::beast::http::error::need_more) break;
    if (error) return InvalidArgument("no HTTP answer: ", error.message());
    if (used == 0) break;
  }
  return OkStatus();
}

Status ResponseParser::Close() {
  if (is_done()) return OkStatus();
  Error error;
  if (got_some()) {
    put_eof(error);
    if (!error && is_done()) return OkStatus();
  }
  return Unavailable("the connection was closed before the end");
}

}  // namespace sluice::http
