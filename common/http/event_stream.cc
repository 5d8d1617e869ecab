#include "common/http/event_stream.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::http {

EventStream::EventStream(std::shared_ptr<Exchange> exchange,
                         const EventStreamTimes& times, HttpHeaders headers,
                         const EventFraming& framing)
    : exchange_(std::move(exchange)),
      times_(times),
      headers_(std::move(headers)),
      framing_(framing) {}

void EventStream::Await(std::string opening,
                        std::function<std::string()> ping) {
  opening_ = std::move(opening);
  ping_ = std::move(ping);
  const Duration waited = Clock::now() - exchange_->request().arrival;
  WaitFor(std::max(times_.head_after - waited, Duration::zero()));
}

void EventStream::Open() {
  if (std::exchange(open_, true)) return;
  HttpResponse head = framing_.head();
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  exchange_->BeginStream(std::move(head));
  SendChunk(std::exchange(opening_, {}));
  if (times_.ping_interval > Duration::zero()) WaitFor(times_.ping_interval);
}

void EventStream::Send(std::string_view json, std::string_view id,
                       std::string_view name) {
  Open();
  SendChunk(FramedEvent(framing_, json, id, name));
}

void EventStream::SendPart(std::string bytes) {
  Open();
  within_event_ = !bytes.ends_with(framing_.last);
  SendChunk(std::move(bytes));
}

void EventStream::SendComment(std::string_view text) {
  if (!within_event_) SendChunk(framing_.comment(text));
}

void EventStream::End() { exchange_->EndStream(); }

void EventStream::SendChunk(std::string bytes) {
  last_sent_ = Clock::now();
  if (!bytes.empty()) exchange_->SendChunk(std::move(bytes));
}

void EventStream::WaitFor(Duration silence) {
  exchange_->PostAfter(silence, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnSilence();
  });
}

// One wait per interval, however many events there are in it: what is left of
// it since the latest event is waited for when it is over.
void EventStream::OnSilence() {
  if (!open_) {
    Open();
    return;
  }
  // It opened before the wait for the header was over.
  if (times_.ping_interval <= Duration::zero()) return;
  const Duration silence = Clock::now() - last_sent_;
  if (silence < times_.ping_interval) {
    WaitFor(times_.ping_interval - silence);
    return;
  }
  if (!within_event_) SendChunk(ping_ ? ping_() : framing_.comment("ping"));
  WaitFor(times_.ping_interval);
}

}  // namespace sluice::http
