#ifndef SLUICE_COMMON_HTTP_EXCHANGE_H_
#define SLUICE_COMMON_HTTP_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/core/step_trace.h"
#include "common/http/error_answer.h"
#include "common/http/message.h"

namespace sluice::http {

enum class Gone {
  kDisconnected,  // the client closed, or its connection broke
  kSlowReader,    // it took nothing for too long, or its answer was cut: the
                  // largest, when memory for answers was short
  kShutdown,      // the server stops and waits no longer
  kFailed,        // an exception of ours ended the request
};

// A generation's figures so far, for the access log.
struct AnswerFigures {
  bool generates = false;               // else the rest says nothing
  std::optional<Duration> first_token;  // from the request's arrival
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t completion_tokens = 0;
  std::string finish;  // "stop"; of choices that differ "stop,length"
  // Of an error that came after the answer's head.
  std::string error_type;
  std::string error_code;
};

// The end of an exchange.
struct AnswerEnd {
  int status = 0;                          // 0: the client left first
  std::string_view error_type;             // of the ApiError, or empty
  const AnswerFigures* figures = nullptr;  // null: none
};

// Observes an answer's bytes, for traces; on the exchange's loop.
class WriteObserver {
 public:
  virtual ~WriteObserver() = default;
  // One block waited for the connection, and was written to the socket.
  virtual void OnWritten(const TraceSpan& wait, const TraceSpan& write) = 0;
  // Nothing more is written: the answer is complete, or the client is gone.
  // `end` lives as long as the call.
  virtual void OnClosed(const AnswerEnd& end) = 0;
};

// One request and its one answer: either Send once, or BeginStream, any number
// of SendChunk and EndStream. An exchange lives on one event loop; all methods
// but Post and gone are for that loop's thread. An exchange drops bytes sent
// after the answer's end or after the client left.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual HttpRequest& request() = 0;
  // Frees the request's body, which the handler has read.
  virtual void ReleaseBody() { request().body = {}; }
  // Gives the request a body that its client did not send; it counts among the
  // bodies of the server. False: they are too many, and the body is as before.
  virtual bool TakeBody(const std::string& body) {
    request().body = body;
    return true;
  }

  // Runs `work` on the exchange's loop, soon. Any thread. Dropped only if
  // the server is destroyed first.
  virtual void Post(std::function<void()> work) = 0;
  // Runs `work` on the exchange's loop after `delay`, instead of the work of
  // an earlier call that has not run. Dropped with the answer's end, and when
  // the client goes away: `work` may hold the exchange.
  virtual void PostAfter(Duration delay, std::function<void()> work) = 0;

  // A response with an error has no body: the exchange writes it (WriteError).
  virtual void Send(HttpResponse response) = 0;
  // Sends an error as the request's client reads it.
  void SendError(ApiError error) { Send(ErrorResponse(std::move(error))); }
  // How that client reads what the server writes.
  virtual ClientFormat client_format() { return {}; }

  // The head of an answer whose body comes in pieces; `head.body` is unused.
  virtual void BeginStream(HttpResponse head) = 0;
  // One chunk of the body, written to the socket by itself: never merged
  // with another. Not empty.
  virtual void SendChunk(std::string bytes) = 0;
  virtual void EndStream() = 0;

  // Ends an incomplete answer: the client sees a broken stream.
  virtual void Break() { EndStream(); }

  // Sets the number of bytes collected for the answer and not sent yet; they
  // count like bytes that the client has not read. False: memory for answers is
  // short, and the caller ends this answer with an error; a stream ends by
  // itself.
  virtual bool Hold(size_t bytes) { return true; }
  // Runs `work` on the loop once the client has read most of what was sent;
  // dropped when it goes away.
  virtual void WhenRead(std::function<void()> work) { Post(std::move(work)); }

  // `callback` runs at most once, on the loop, if the client goes away before
  // the answer's end; at once if it already has.
  virtual void OnGone(std::function<void(Gone)> callback) = 0;
  // Whether the client is gone, so that no answer is needed. Any thread.
  virtual bool gone() const { return false; }

  // Tells `observer` of every block from now on. Before anything is sent.
  virtual void Observe(std::shared_ptr<WriteObserver> observer) {}

  // The route's pattern, for metrics; set by the router.
  virtual void set_route(std::string_view route) = 0;

  // The generator of the answer fills these in.
  virtual AnswerFigures& figures() { return figures_; }

 private:
  AnswerFigures figures_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EXCHANGE_H_
