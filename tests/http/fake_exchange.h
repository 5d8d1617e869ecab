#ifndef SLUICE_TESTS_HTTP_FAKE_EXCHANGE_H_
#define SLUICE_TESTS_HTTP_FAKE_EXCHANGE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/http/exchange.h"

namespace sluice::http {

// An exchange without a socket. Posted work runs at once, or, with
// `deferred`, when the test calls RunPosted.
class FakeExchange : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  HttpRequest& request() override { return request_; }
  void Post(std::function<void()> work) override;
  void PostAfter(Duration delay, std::function<void()> work) override;
  void Send(HttpResponse response) override;
  ClientFormat client_format() override { return format; }
  void BeginStream(HttpResponse head) override;
  void SendChunk(std::string bytes) override;
  void EndStream() override;
  void OnGone(std::function<void(Gone)> callback) override;
  bool gone() const override { return left_; }
  void set_route(std::string_view route) override { route_ = route; }

  void RunPosted();
  void Leave(Gone why);  // the client goes away
  // Runs what PostAfter was given, as if its time had come; false if there is
  // nothing.
  bool RunLater();
  bool has_later() const { return later_ != nullptr; }

  bool deferred = false;
  ClientFormat format;
  std::vector<HttpResponse> responses;  // of Send, or the stream's head
  std::vector<std::string> chunks;
  bool streaming = false;
  bool ended = false;
  std::string route_;
  Duration later_delay{};  // of the latest PostAfter

  // The one answer's body as JSON.
  Json Body() const;
  // The chunks' JSON, without comments and the final [DONE].
  std::vector<Json> Events() const;

 private:
  HttpRequest request_;
  std::vector<std::function<void()>> posted_;
  std::function<void(Gone)> on_gone_;
  std::function<void()> later_;
  std::atomic<bool> left_{false};
};

std::shared_ptr<FakeExchange> Post(std::string_view path, std::string body);

}  // namespace sluice::http

#endif  // SLUICE_TESTS_HTTP_FAKE_EXCHANGE_H_
