#ifndef SLUICE_COMMON_HTTP_EVENT_STREAM_H_
#define SLUICE_COMMON_HTTP_EVENT_STREAM_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/http/event_framing.h"
#include "common/http/exchange.h"
#include "common/http/message.h"

namespace sluice::http {

// The times of a stream's signs of life.
struct EventStreamTimes {
  // The header is sent at the latest this long after the request's arrival.
  Duration head_after = std::chrono::seconds(10);
  // The silence after which a sign of life is sent; zero and less: never.
  Duration ping_interval = std::chrono::seconds(10);
};

// An exchange's answer as a stream of events. The header goes out with the
// first of Open, Send and the end of `head_after`; from then on a sign of life
// goes out whenever nothing else did for `ping_interval`. Lives on its
// exchange's loop; work that it posts to the exchange holds no reference to it.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  // `headers` come behind those of every stream. `framing` outlives the stream.
  EventStream(std::shared_ptr<Exchange> exchange, const EventStreamTimes& times,
              HttpHeaders headers = {},
              const EventFraming& framing = kServerSentEvents);

  // Begins to wait for `head_after`. Another answer may still come before the
  // stream opens. `opening`, bytes of events, goes out behind the header.
  // `ping` returns the bytes of an event for a silence. With null the stream
  // sends a comment instead.
  void Await(std::string opening = {},
             std::function<std::string()> ping = nullptr);
  // Sends the header if it is not sent yet.
  void Open();
  bool is_open() const { return open_; }
  void Send(std::string_view json, std::string_view id = {},
            std::string_view name = {});
  // Bytes of events as they are sent: a large event comes in several parts,
  // and no comment goes out before its last one.
  void SendPart(std::string bytes);
  // Sends a comment, which clients skip; drops it within an event, and where
  // the framing has no comments. Needs is_open().
  void SendComment(std::string_view text);
  // Whether the last part of an event is still to come.
  bool is_within_event() const { return within_event_; }
  // Ends the answer; Send or Open came before.
  void End();

 private:
  void WaitFor(Duration silence);
  void OnSilence();
  void SendChunk(std::string bytes);

  const std::shared_ptr<Exchange> exchange_;
  const EventStreamTimes times_;
  const HttpHeaders headers_;
  const EventFraming& framing_;
  std::string opening_;
  std::function<std::string()> ping_;  // null: a comment
  bool open_ = false;
  bool within_event_ = false;
  TimePoint last_sent_{};
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EVENT_STREAM_H_
