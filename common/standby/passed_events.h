#ifndef SLUICE_COMMON_STANDBY_PASSED_EVENTS_H_
#define SLUICE_COMMON_STANDBY_PASSED_EVENTS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/http/exchange.h"
#include "common/http/sse.h"

namespace sluice::standby {

// What a client has got of a stream of server-sent events: whether its last
// event is whole, and the id of the latest whole one. Threadless.
class PassedEvents {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        if (line_.size() < kMaxLine) line_ += c;
        continue;
      }
      Take();
      line_.clear();
    }
    if (!line_.empty()) is_whole_ = false;
  }
  // Also before the first event.
  bool is_whole() const { return is_whole_; }
  // Of the latest whole event that has one; empty: none had.
  const std::string& last_id() const { return id_; }
  // Whether no event has passed behind the one with last_id().
  bool is_last_id_latest() const { return !id_.empty() && !passed_more_; }
  // The number of events with data, the latest of which may not be whole.
  size_t events() const { return events_; }

 private:
  void Take() {
    if (line_.starts_with("id: ")) pending_ = line_.substr(4);
    // A list in brackets is a mark, as of a stream's end, and no event.
    if (line_.starts_with("data: ") && !line_.starts_with("data: [")) {
      passed_more_ = true;
      ++events_;
    }
    is_whole_ = line_.empty();
    if (is_whole_ && !pending_.empty()) {
      id_ = std::exchange(pending_, {});
      passed_more_ = false;
    }
  }

  static constexpr size_t kMaxLine = 512;  // of what may be an id

  std::string line_;
  std::string pending_;
  std::string id_;
  size_t events_ = 0;
  bool is_whole_ = true;
  bool passed_more_ = false;
};

// The rest of a stream of events whose beginning came from another server: the
// head is not sent again, and a whole answer, an error, becomes an event.
class ResumedExchange : public http::Exchange {
 public:
  // `inner` has its head and some events, and no more comes from elsewhere.
  explicit ResumedExchange(std::shared_ptr<http::Exchange> inner)
      : inner_(std::move(inner)) {}

  http::HttpRequest& request() override { return inner_->request(); }
  void ReleaseBody() override { inner_->ReleaseBody(); }
  void Post(std::function<void()> work) override {
    inner_->Post(std::move(work));
  }
  void PostAfter(Duration delay, std::function<void()> work) override {
    inner_->PostAfter(delay, std::move(work));
  }
  void Send(http::HttpResponse response) override {
    if (response.error) {
      figures().error_type = response.error->type;
      figures().error_code = response.error->code.value_or("");
      inner_->SendChunk(
          client_format().stream_error(*response.error, request()));
    } else {
      inner_->SendChunk(http::SseEvent(response.body));
    }
    EndStream();
  }
  http::ClientFormat client_format() override {
    return inner_->client_format();
  }
  void BeginStream(http::HttpResponse) override {}
  void SendChunk(std::string bytes) override {
    inner_->SendChunk(std::move(bytes));
  }
  void EndStream() override { inner_->EndStream(); }
  void Break() override { inner_->Break(); }
  bool Hold(size_t bytes) override { return inner_->Hold(bytes); }
  void WhenRead(std::function<void()> work) override {
    inner_->WhenRead(std::move(work));
  }
  void OnGone(std::function<void(http::Gone)> callback) override {
    inner_->OnGone(std::move(callback));
  }
  bool gone() const override { return inner_->gone(); }
  void set_route(std::string_view route) override { inner_->set_route(route); }
  http::AnswerFigures& figures() override { return inner_->figures(); }

 private:
  const std::shared_ptr<http::Exchange> inner_;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_PASSED_EVENTS_H_
