#ifndef SLUICE_COMMON_STANDBY_HANDOVER_EXCHANGE_H_
#define SLUICE_COMMON_STANDBY_HANDOVER_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/http/exchange.h"
#include "common/standby/passed_events.h"

namespace sluice::standby {

// An exchange that another server can go on with: where its handler ends it
// with an error of the code kSuperseded, the client does not see the error, and
// `hand_over` gets the exchange, with the events that the client has if it has
// any. A stream without ids of events ends with the error.
class HandoverExchange : public http::Exchange {
 public:
  using HandOver = std::function<void(std::shared_ptr<http::Exchange>,
                                      std::optional<PassedEvents>)>;
  // Of an answer's error.
  static constexpr std::string_view kSuperseded = "superseded";

  HandoverExchange(std::shared_ptr<http::Exchange> inner, HandOver hand_over)
      : inner_(std::move(inner)), hand_over_(std::move(hand_over)) {}

  http::HttpRequest& request() override { return inner_->request(); }
  // The next server needs the body; a large one is not kept for that.
  void ReleaseBody() override {
    if (is_over_ || is_released_) return;
    is_released_ = request().body.size() > kKeptBytes;
    if (is_released_) inner_->ReleaseBody();
  }
  void Post(std::function<void()> work) override {
    inner_->Post(std::move(work));
  }
  void PostAfter(Duration delay, std::function<void()> work) override {
    if (!is_over_) inner_->PostAfter(delay, std::move(work));
  }
  void Send(http::HttpResponse response) override {
    if (is_over_) return;
    const bool is_superseded =
        response.error && response.error->code == kSuperseded;
    if (is_superseded && !is_released_) {
      return GiveAway(std::nullopt);
    }
    is_over_ = true;
    inner_->Send(std::move(response));
  }
  http::ClientFormat client_format() override {
    return inner_->client_format();
  }
  void BeginStream(http::HttpResponse head) override {
    if (is_over_) return;
    is_events_ = head.content_type.starts_with("text/event-stream");
    inner_->BeginStream(std::move(head));
  }
  void SendChunk(std::string bytes) override {
    if (is_over_) return;
    const bool is_error = figures().error_code == kSuperseded;
    if (is_error && is_events_ && passed_.is_whole() &&
        passed_.is_last_id_latest() && !is_released_) {
      return GiveAway(std::move(passed_));
    }
    if (is_events_) passed_.Add(bytes);
    inner_->SendChunk(std::move(bytes));
  }
  void EndStream() override {
    if (is_over_) return;
    is_over_ = true;
    inner_->EndStream();
  }
  void Break() override {
    if (!is_over_) inner_->Break();
  }
  bool Hold(size_t bytes) override { return is_over_ || inner_->Hold(bytes); }
  void WhenRead(std::function<void()> work) override {
    if (!is_over_) inner_->WhenRead(std::move(work));
  }
  void OnGone(std::function<void(http::Gone)> callback) override {
    if (!is_over_) inner_->OnGone(std::move(callback));
  }
  bool gone() const override { return inner_->gone(); }
  void Observe(std::shared_ptr<http::WriteObserver> observer) override {
    inner_->Observe(std::move(observer));
  }
  void set_route(std::string_view route) override { inner_->set_route(route); }
  http::AnswerFigures& figures() override { return inner_->figures(); }

 private:
  static constexpr size_t kKeptBytes = size_t{64} << 10;

  void GiveAway(std::optional<PassedEvents> passed) {
    is_over_ = true;
    inner_->Hold(0);
    inner_->figures() = {};
    hand_over_(inner_, std::move(passed));
  }

  const std::shared_ptr<http::Exchange> inner_;
  const HandOver hand_over_;
  PassedEvents passed_;
  bool is_events_ = false;
  bool is_released_ = false;
  bool is_over_ = false;  // ended, or another server's
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_HANDOVER_EXCHANGE_H_
