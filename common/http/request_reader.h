#ifndef SLUICE_COMMON_HTTP_REQUEST_READER_H_
#define SLUICE_COMMON_HTTP_REQUEST_READER_H_

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/http/client_stream.h"
#include "common/http/connection_context.h"
#include "common/http/connection_table.h"
#include "common/http/message.h"
#include "common/http/task.h"

namespace sluice::http {

// How the connection frames an answer.
struct AnswerFraming {
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  bool head_only = false;  // the request was HEAD
  bool keep_alive = true;
};

// A request, whole or as far as it is read.
struct IncomingRequest {
  explicit IncomingRequest(HttpServerStats& stats) : body_share(stats) {}

  HttpRequest request;
  AnswerFraming framing;                 // of a whole request
  BodyShare body_share;                  // of `request.body`
  std::optional<HttpResponse> screened;  // the answer, whatever the body
  std::optional<HttpResponse> refusal;   // the connection's last answer
};

// Reads a connection's requests, one by one: their heads, limits and bodies.
// Runs on the connection's loop, with one operation at a time.
class RequestReader {
 public:
  // The connection owns the reader, `stream` and `place`. `place` may be null.
  RequestReader(const ConnectionContext& context, ClientStream& stream,
                ConnectionTable::Place* place);

  // Reads the next request whole into `incoming()`. False when the connection
  // is to be closed; then `incoming().refusal` may hold a last answer.
  Task<bool> Read();
  // Reads once, without a deadline of its own, while an answer is made: bytes
  // of the next request, or the end of the client's half.
  Task<boost::system::error_code> ReadAhead();
  // Whether ReadAhead has room, and the client may send more.
  bool can_read_ahead() const;

  IncomingRequest& incoming() { return incoming_; }
  // Whether the reader waits for a request other than the first.
  bool is_idle() const { return is_idle_; }
  bool is_half_closed() const { return is_half_closed_; }

 private:
  struct Parser;  // Beast's

  Task<bool> AwaitFirstByte();
  // Drops the empty lines before a request (RFC 9112, section 2.2), within
  // bounds. Returns whether bytes of a request are left in the buffer.
  bool SkipEmptyLines();
  // Reads and drops what is left of the body of a request that was answered
  // without it. False if it does not come.
  Task<bool> DropBody();
  Task<bool> Handshake();
  Task<bool> ReadHeader(Parser& parser);
  Task<bool> ReadBody(Parser& parser);
  Task<bool> AnswerExpectation(std::string_view expect);
  // Parses the part of a message that is in the buffer. Sets need_more if the
  // message goes on.
  void ParseBuffered(Parser& parser, boost::system::error_code& error);
  Task<boost::system::error_code> ReadMore();
  // Parses the bytes in the buffer, or reads more first.
  Task<boost::system::error_code> ReadSome(Parser& parser);
  // False, with a refusal, for a header that is well-formed and yet refused.
  bool AcceptHeader(const Parser& parser);
  bool AcceptFraming(unsigned version);
  bool AcceptBodySize(const Parser& parser);
  // Refuses a body of `body_bytes` that makes `all_bytes`, the bytes of all
  // bodies, too many.
  bool BodiesFit(size_t body_bytes, long long all_bytes);
  void Refuse(int status, std::string_view reason);
  void SetActivity(ConnectionTable::Activity activity);
  // Sets the address of the request's client.
  void SetPeer(std::string address);

  const ConnectionContext context_;
  ClientStream& stream_;
  ConnectionTable::Place* const place_;
  const std::string peer_;  // its IP address, or "unknown"
  boost::beast::flat_buffer buffer_;
  IncomingRequest incoming_;
  size_t unread_body_ = 0;     // bytes of the latest request's body
  int empty_lines_ = 0;        // before the request that is awaited
  bool is_passed_on_ = false;  // the latest request: its client is no proxy
  bool is_fresh_ = true;       // no request yet
  bool is_idle_ = false;
  // The client has half-closed the connection. The reader reads nothing from
  // then on, since Asio reports the end once alone.
  bool is_half_closed_ = false;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_REQUEST_READER_H_
