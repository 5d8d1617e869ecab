#ifndef SLUICE_COMMON_HTTP_ERROR_ANSWER_H_
#define SLUICE_COMMON_HTTP_ERROR_ANSWER_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/http/message.h"

namespace sluice::http {

// Returns an answer that has the error, and no body yet.
HttpResponse ErrorResponse(ApiError error);
// Returns the answer to bytes that are no valid request, by HTTP status.
HttpResponse TransportError(int http_status, std::string_view message);

// What a server without dialects writes: errors as the object that OpenAI's API
// has made most clients read, and its header of the time. The functions are the
// members of ClientFormat(); a dialect may take them for its own.

// Returns {"error":{"message","type","param","code"}}: param and code string or
// null.
std::string ErrorJson(const ApiError& error);
// Returns the whole answer. 429 and 503 carry Retry-After and Retry-After-Ms.
HttpResponse PlainError(const ApiError& error, const HttpRequest& request);
// Returns ErrorJson as a server-sent event.
std::string PlainStreamError(const ApiError& error, const HttpRequest& request);
// Adds the milliseconds that the answer's head took.
void AddPlainHeaders(const HttpRequest& request, Duration took,
                     HttpHeaders& headers);

// How the client of a request reads what the server, and no handler, writes:
// every dialect has a format, and ClientFormat() is that of a server without
// dialects. Pure functions; any thread.
struct ClientFormat {
  // Returns an error as a whole answer.
  HttpResponse (*error)(const ApiError& error,
                        const HttpRequest& request) = PlainError;
  // Returns the bytes of an error as the last of a stream that has begun.
  std::string (*stream_error)(const ApiError& error,
                              const HttpRequest& request) = PlainStreamError;
  // Adds the headers of every answer, whose head took so long; they take the
  // place of those with the same names.
  void (*add_headers)(const HttpRequest& request, Duration took,
                      HttpHeaders& headers) = AddPlainHeaders;
};

// Writes the error of `response`, if it has one: its headers come behind those
// of the format.
void WriteError(const ClientFormat& format, const HttpRequest& request,
                HttpResponse& response);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_ERROR_ANSWER_H_
