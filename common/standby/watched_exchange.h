#ifndef SLUICE_COMMON_STANDBY_WATCHED_EXCHANGE_H_
#define SLUICE_COMMON_STANDBY_WATCHED_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/http/exchange.h"
#include "common/standby/passed_events.h"

namespace sluice::standby {

// An exchange that tells of its answer's first event, and of its end. The calls
// come on the exchange's loop or, of the end, wherever the last reference goes.
class WatchedExchange : public http::Exchange {
 public:
  // Either may be called more than once.
  struct Watch {
    std::function<void()> on_event;
    std::function<void()> on_end;
  };

  // `is_events`: a stream of events has begun, or begins with BeginStream.
  WatchedExchange(std::shared_ptr<http::Exchange> inner, bool is_events,
                  Watch watch)
      : inner_(std::move(inner)),
        watch_(std::move(watch)),
        is_events_(is_events) {}
  ~WatchedExchange() override { watch_.on_end(); }

  http::HttpRequest& request() override { return inner_->request(); }
  void ReleaseBody() override { inner_->ReleaseBody(); }
  bool TakeBody(const std::string& body) override {
    return inner_->TakeBody(body);
  }
  void Post(std::function<void()> work) override {
    inner_->Post(std::move(work));
  }
  void PostAfter(Duration delay, std::function<void()> work) override {
    inner_->PostAfter(delay, std::move(work));
  }
  void Send(http::HttpResponse response) override {
    inner_->Send(std::move(response));
    watch_.on_end();
  }
  http::ClientFormat client_format() override {
    return inner_->client_format();
  }
  void BeginStream(http::HttpResponse head) override {
    is_events_ = head.content_type.starts_with("text/event-stream");
    inner_->BeginStream(std::move(head));
  }
  void SendChunk(std::string bytes) override {
    if (is_events_) passed_.Add(bytes);
    const bool tells = !is_events_ || passed_.events() > 0;
    inner_->SendChunk(std::move(bytes));
    if (tells && !std::exchange(has_told_, true)) watch_.on_event();
  }
  void EndStream() override {
    inner_->EndStream();
    watch_.on_end();
  }
  void Break() override {
    inner_->Break();
    watch_.on_end();
  }
  bool Hold(size_t bytes) override { return inner_->Hold(bytes); }
  void WhenRead(std::function<void()> work) override {
    inner_->WhenRead(std::move(work));
  }
  void OnGone(std::function<void(http::Gone)> callback) override {
    inner_->OnGone(
        [callback = std::move(callback), end = watch_.on_end](http::Gone why) {
          callback(why);
          end();
        });
  }
  bool gone() const override { return inner_->gone(); }
  void Observe(std::shared_ptr<http::WriteObserver> observer) override {
    inner_->Observe(std::move(observer));
  }
  void set_route(std::string_view route) override {
    inner_->set_route(route);
    // A forwarder has the exchange: another server answers it.
    if (route == "forwarded") watch_.on_end();
  }
  http::AnswerFigures& figures() override { return inner_->figures(); }

 private:
  const std::shared_ptr<http::Exchange> inner_;
  const Watch watch_;
  bool is_events_;
  PassedEvents passed_;
  bool has_told_ = false;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_WATCHED_EXCHANGE_H_
