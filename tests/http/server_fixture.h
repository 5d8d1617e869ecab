#ifndef SLUICE_TESTS_HTTP_SERVER_FIXTURE_H_
#define SLUICE_TESTS_HTTP_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/error_answer.h"
#include "common/http/event_stream.h"
#include "common/http/http_server.h"
#include "common/http/router.h"
#include "tests/http/raw_client.h"
#include "tests/testing/holds_within.h"

namespace sluice::http {

// A request to /held; with "stream":true in `fields` its answer is a stream.
inline std::string HeldOf(std::string_view fields) {
  return PostOf("/held", Cat("{", fields, "}"));
}

// Waits until `condition` holds; false after ten seconds.
template <typename Condition>
bool AwaitThat(Condition condition) {
  return testing::HoldsWithin(std::chrono::seconds(10), condition);
}

// Requests whose answers a test writes, numbered from 0 as they come. Methods
// of any thread.
class HeldRequests {
 public:
  void Take(std::shared_ptr<Exchange> exchange, const EventStreamTimes& times) {
    auto held = std::make_shared<Held>();
    if (exchange->request().body.find("\"stream\":true") != std::string::npos) {
      held->stream = std::make_shared<EventStream>(exchange, times);
      held->stream->Await();
    }
    exchange->ReleaseBody();
    held->exchange = exchange;
    exchange->OnGone([this, held](Gone) {
      held->stream = nullptr;
      MutexLock lock(mutex_);
      held->exchange = nullptr;
      ++gone_;
    });
    MutexLock lock(mutex_);
    held_.push_back(std::move(held));
  }

  size_t count() {
    MutexLock lock(mutex_);
    return held_.size();
  }
  bool AwaitHeld(size_t count) {
    return AwaitThat([&] { return this->count() >= count; });
  }
  // Waits until `count` clients have gone before their answer's end.
  bool AwaitGone(size_t count) {
    return AwaitThat([&] {
      MutexLock lock(mutex_);
      return gone_ >= count;
    });
  }

  // Begins a stream.
  void Start(size_t index) {
    Post(index, [](Held& held) { held.stream->Open(); });
  }
  // Adds {"content": TEXT} to a stream, or TEXT to a whole answer.
  void Text(size_t index, std::string_view text) {
    Post(index, [text = std::string(text)](Held& held) {
      if (held.stream == nullptr) {
        held.text += text;
      } else {
        held.stream->Send(Content(text));
      }
    });
  }
  void End(size_t index) {
    Post(index, [this](Held& held) {
      std::shared_ptr<Exchange> exchange;
      {
        MutexLock lock(mutex_);
        exchange = std::exchange(held.exchange, nullptr);
      }
      if (const auto stream = std::exchange(held.stream, nullptr)) {
        stream->Send("[DONE]");
        stream->End();
      } else if (exchange != nullptr) {
        HttpResponse response;
        response.body = Content(held.text);
        exchange->Send(std::move(response));
      }
    });
  }
  void EndAll() {
    for (size_t i = 0; i < count(); ++i) End(i);
  }

 private:
  // The members but `exchange` are the loop's.
  struct Held {
    std::shared_ptr<Exchange> exchange;  // null: answered, or gone
    std::shared_ptr<EventStream> stream;
    std::string text;
  };

  static std::string Content(std::string_view text) {
    return Cat("{\"content\":\"", text, "\"}");
  }
  template <typename Work>
  void Post(size_t index, Work work) {
    std::shared_ptr<Held> held;
    std::shared_ptr<Exchange> exchange;
    {
      MutexLock lock(mutex_);
      held = held_.at(index);
      exchange = held->exchange;
    }
    if (exchange == nullptr) return;
    Exchange& on = *exchange;
    on.Post([held, exchange = std::move(exchange), work] {
      if (!exchange->gone()) work(*held);
    });
  }

  Mutex mutex_;
  std::vector<std::shared_ptr<Held>> held_ ABSL_GUARDED_BY(mutex_);
  size_t gone_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A server over real sockets: GET /livez; POST /count, which answers with the
// body's size; POST /held (HeldRequests); and two large answers.
class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void TearDown() override {
    held_.EndAll();
    server_.reset();
  }
  // Another server, with other limits, instead of the one that runs.
  void Restart(const HttpLimits& limits) {
    server_.reset();
    Start(limits);
  }

  void Start(const HttpLimits& limits) {
    Router router;
    router.Add("GET", "/livez", [](std::shared_ptr<Exchange> on) {
      on->Send({200, "text/plain", {}, "ok\n"});
    });
    router.Add("POST", "/count", [](std::shared_ptr<Exchange> on) {
      HttpResponse response;
      response.body =
          Cat("{\"count\":", on->request().body.size(), ",\"more\":{}}");
      on->Send(std::move(response));
    });
    router.Add("POST", "/held", [this](std::shared_ptr<Exchange> on) {
      held_.Take(std::move(on), stream_times_);
    });
    router.Add("GET", "/large", [](std::shared_ptr<Exchange> on) {
      HttpResponse response;
      response.body.assign(kLargeAnswer, 'x');
      on->Send(std::move(response));
    });
    router.Add("GET", "/burst", [](std::shared_ptr<Exchange> on) {
      on->BeginStream({});
      const std::string chunk(size_t{16} << 10, 'x');
      for (size_t sent = 0; sent < kLargeAnswer; sent += chunk.size()) {
        on->SendChunk(chunk);
      }
      on->EndStream();
    });
    if (more_routes_) more_routes_(router);
    HttpServerOptions options = options_;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.handler = [router](std::shared_ptr<Exchange> exchange) {
      router.Route(std::move(exchange));
    };
    auto server = HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  int port() const { return server_->port(); }
  // Waits until `condition` holds of the server's figures; false after a
  // minute.
  template <typename Condition>
  bool Await(Condition condition) const {
    return testing::HoldsWithin(std::chrono::minutes(1),
                                [&] { return condition(server_->stats()); });
  }
  std::string Ask(std::string_view request) const {
    Client client(port());
    client.Send(request);
    return client.ReceiveAnswer();
  }

  // What /large answers with, and /burst in chunks that are all sent at once:
  // more than the sockets' buffers hold.
  static constexpr size_t kLargeAnswer = size_t{16} << 20;

  HeldRequests held_;
  // Of the next Start.
  HttpServerOptions options_;
  std::function<void(Router&)> more_routes_;
  EventStreamTimes stream_times_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace sluice::http

#endif  // SLUICE_TESTS_HTTP_SERVER_FIXTURE_H_
