// Requests whose server is lost, over real sockets: which go on, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/sse.h"
#include "common/standby/forwarder.h"
#include "tests/http/server_fixture.h"

namespace sluice::standby {
namespace {

using http::AwaitThat;
using http::Client;
using http::Exchange;
using http::HttpRequest;
using http::HttpServer;
using http::HttpServerOptions;
using http::HttpServerTest;
using http::PostOf;
using http::Router;
using http::SseEvent;
using http::SseHead;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The requests of a server that ends, and comes back, some times.
class LosingServer {
 public:
  // Takes a request to POST /lost: its server ends with it, and with all others
  // that it has, once `together` of them are there, and then once more with
  // each whose body says "culprit". Others are answered after a moment. A body
  // with "stream" is answered by events, of which `told` come before the end.
  void Take(std::shared_ptr<Exchange> on) {
    MutexLock lock(mutex_);
    const std::string body = on->request().body;
    const int tries = tries_[body]++;
    under_way_.push_back(on);
    const bool is_stream = body.find("stream") != body.npos;
    if (is_stream) Begin(*on);
    if (tries == 0) {
      if (++first_ == together_) EndAll();
      return;
    }
    order_.push_back(body);
    most_ = std::max(most_, static_cast<int>(under_way_.size()));
    if (body.find("culprit") != body.npos) return EndAll();
    if (body.find("for ever") != body.npos) return;
    on->PostAfter(std::chrono::milliseconds(150),
                  [this, on, is_stream] { Answer(on, is_stream); });
  }
  // Lets go of all requests, each on its loop.
  void Clear() {
    MutexLock lock(mutex_);
    for (auto& one : under_way_) {
      Exchange& on = *one;
      on.Post([last = std::move(one)] {});
    }
    under_way_.clear();
  }
  void set_together(int together) {
    MutexLock lock(mutex_);
    together_ = together;
  }
  // Of the tries that are not the first.
  int most_at_once() {
    MutexLock lock(mutex_);
    return most_;
  }
  std::vector<std::string> order() {
    MutexLock lock(mutex_);
    return order_;
  }
  int count() {
    MutexLock lock(mutex_);
    return static_cast<int>(under_way_.size());
  }
  // As if it had tried the request once.
  void Know(const std::string& body) {
    MutexLock lock(mutex_);
    tries_[body] = 1;
  }
  void Forget() {
    MutexLock lock(mutex_);
    tries_.clear();
    first_ = 0;
  }
  int tries(const std::string& body) {
    MutexLock lock(mutex_);
    return tries_[body];
  }

 private:
  static void Begin(Exchange& on) {
    on.BeginStream(SseHead());
    if (on.request().body.find("told") == std::string::npos) return;
    const std::string_view last = on.request().Header("last-event-id");
    if (!last.empty()) return;
    on.SendChunk(SseEvent("one", "r-1"));
  }
  void Answer(const std::shared_ptr<Exchange>& on, bool is_stream) {
    {
      MutexLock lock(mutex_);
      std::erase(under_way_, on);
    }
    if (!is_stream) return on->Send({200, "text/plain", {}, "answered"});
    on->SendChunk(
        SseEvent(Cat("behind ", on->request().Header("last-event-id")), "r-2"));
    on->EndStream();
  }
  void EndAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& one : under_way_) {
      one->PostAfter(std::chrono::milliseconds(30), [one] { one->Break(); });
    }
    under_way_.clear();
  }

  Mutex mutex_;
  int together_ ABSL_GUARDED_BY(mutex_) = 1;
  int first_ ABSL_GUARDED_BY(mutex_) = 0;
  int most_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> tries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Exchange>> under_way_ ABSL_GUARDED_BY(mutex_);
};

// The fixture's server leads, `standby_` passes requests on to it.
class LostServersTest : public HttpServerTest {
 protected:
  void SetUp() override {
    // All requests are of one loop: what one has ended, the others have too.
    options_.threads = 1;
    more_routes_ = [this](Router& router) {
      router.Add("GET", "/readyz", [](std::shared_ptr<Exchange> on) {
        on->Send({200, "text/plain", {}, "leader"});
      });
      router.Add("POST", "/lost", [this](std::shared_ptr<Exchange> on) {
        losing_.Take(std::move(on));
      });
    };
    HttpServerTest::SetUp();
    ForwarderOptions options;
    options.peers = {Cat("127.0.0.1:", port())};
    options.patience = patience_;
    options.leads = [this] { return leads_.load(); };
    options.rank = [](const std::string& body) {
      return uint64_t{body == "leader"};
    };
    options.is_plain = [](const HttpRequest& request) {
      return request.body.find("grammar") == std::string::npos;
    };
    options.serve = [this](std::shared_ptr<Exchange> on) {
      here_.Take(std::move(on));
    };
    auto forwarder = Forwarder::Start(std::move(options));
    ASSERT_TRUE(forwarder.ok()) << forwarder.status();
    forwarder_ = std::move(*forwarder);
    HttpServerOptions server;
    server.listen = "127.0.0.1:0";
    server.threads = 1;
    server.handler = [this](std::shared_ptr<Exchange> on) {
      forwarder_->Take(std::move(on));
    };
    auto started = HttpServer::Start(std::move(server));
    ASSERT_TRUE(started.ok()) << started.status();
    standby_ = std::move(*started);
  }
  void TearDown() override {
    losing_.Clear();
    here_.Clear();
    forwarder_->Stop();
    standby_.reset();
    HttpServerTest::TearDown();
  }
  // Sends all bodies, and returns the answers once all have ended.
  std::vector<std::string> AnswersTo(const std::vector<std::string>& bodies) {
    losing_.set_together(static_cast<int>(bodies.size()));
    std::vector<std::unique_ptr<Client>> clients;
    for (const std::string& body : bodies) {
      clients.push_back(std::make_unique<Client>(standby_->port()));
      clients.back()->Send(PostOf("/lost", body));
    }
    std::vector<std::string> answers;
    for (size_t i = 0; i < bodies.size(); ++i) {
      answers.push_back(bodies[i].find("stream") == std::string::npos
                            ? clients[i]->ReceiveAnswer()
                            : clients[i]->ReceiveUntil("0\r\n\r\n"));
    }
    return answers;
  }

  LosingServer losing_;
  LosingServer here_;  // the standby, where it leads
  std::atomic<bool> leads_{false};
  Duration patience_ = std::chrono::seconds(10);
  std::unique_ptr<Forwarder> forwarder_;
  std::unique_ptr<HttpServer> standby_;
};

TEST_F(LostServersTest, ACulpritEndsWithItsSecondServer) {
  const auto answers = AnswersTo({"culprit"});
  EXPECT_THAT(answers[0],
              AllOf(StartsWith("HTTP/1.1 500 "),
                    HasSubstr("2 gateways were lost while they answered this "
                              "request. It may be the cause"),
                    HasSubstr("\"code\":\"lost_gateways\""),
                    HasSubstr("X-Should-Retry: false")));
  EXPECT_EQ(losing_.tries("culprit"), 2);
  EXPECT_EQ(forwarder_->stats().lost, 1u);
}

TEST_F(LostServersTest, SuspectsAreTriedOneAfterTheOther) {
  const auto answers = AnswersTo({"grammar 1", "grammar culprit 2", "grammar 3",
                                  "grammar culprit 4", "grammar 5"});
  for (const size_t innocent : {0, 2, 4}) {
    EXPECT_THAT(answers[innocent], EndsWith("answered")) << innocent;
  }
  for (const size_t culprit : {1, 3}) {
    EXPECT_THAT(answers[culprit], HasSubstr("lost_gateways")) << culprit;
  }
  EXPECT_EQ(losing_.most_at_once(), 1);
  EXPECT_EQ(losing_.order().size(), 5u);
}

TEST_F(LostServersTest, PlainSuspectsAreTriedTogetherBeforeTheOthers) {
  const auto answers = AnswersTo({"grammar", "plain 1", "plain 2", "plain 3"});
  for (const std::string& answer : answers) {
    EXPECT_THAT(answer, EndsWith("answered"));
  }
  EXPECT_EQ(losing_.order().back(), "grammar");
  EXPECT_GT(losing_.most_at_once(), 1);
}

TEST_F(LostServersTest, StreamsWithEventsGoOnBeforeASuspectIsTried) {
  const auto answers = AnswersTo({"grammar culprit", "stream told 1",
                                  "grammar stream told 2", "stream silent 3"});
  EXPECT_THAT(answers[0], HasSubstr("lost_gateways"));
  for (const size_t told : {1, 2}) {
    EXPECT_THAT(answers[told], AllOf(HasSubstr("data: one\n"),
                                     HasSubstr("data: behind r-1\n")));
  }
  EXPECT_THAT(answers[3], HasSubstr("data: behind \n")) << "from its beginning";
  for (const size_t stream : {1, 2, 3}) {
    EXPECT_EQ(answers[stream].find("error"), std::string::npos);
    EXPECT_EQ(answers[stream].rfind("HTTP/1.1"), 0u) << "one head";
  }
  EXPECT_EQ(losing_.order().back(), "grammar culprit");
}

TEST_F(LostServersTest, ACulpritWithEventsEndsWithItsThirdServer) {
  for (const char* body : {"stream told culprit", "grammar stream told culprit",
                           "grammar stream culprit"}) {
    const auto answers = AnswersTo({body});
    EXPECT_THAT(answers[0], HasSubstr("\"code\":\"lost_gateways\"")) << body;
    EXPECT_THAT(answers[0], StartsWith("HTTP/1.1 200 ")) << body;
    const bool is_told = std::string(body).find("told") != std::string::npos;
    EXPECT_EQ(losing_.tries(body), is_told ? 3 : 2) << body;
    losing_.Forget();
  }
}

TEST_F(LostServersTest, AServerThatLeadsTriesItsSuspectsInTheSameOrder) {
  losing_.set_together(6);
  std::vector<std::unique_ptr<Client>> clients;
  for (const char* body :
       {"grammar 1", "grammar 2", "grammar 3", "stream told"}) {
    clients.push_back(std::make_unique<Client>(standby_->port()));
    clients.back()->Send(PostOf("/lost", body));
    here_.Know(body);
  }
  ASSERT_TRUE(AwaitThat([&] { return losing_.count() == 4; }));
  leads_ = true;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(clients[i]->ReceiveAnswer(), EndsWith("answered"));
  }
  EXPECT_THAT(clients[3]->ReceiveUntil("0\r\n\r\n"),
              HasSubstr("data: behind r-1\n"));
  EXPECT_EQ(here_.order().front(), "stream told");
  EXPECT_EQ(here_.order().size(), 4u);
  EXPECT_EQ(here_.most_at_once(), 1) << "the stream's end is waited for";
}

TEST_F(LostServersTest, AClientThatLeavesGivesItsTurnToTheNext) {
  losing_.set_together(3);
  auto leaver = std::make_unique<Client>(standby_->port());
  leaver->Send(PostOf("/lost", "grammar waits for ever"));
  ASSERT_TRUE(AwaitThat([&] { return losing_.count() == 1; }));
  Client first(standby_->port()), second(standby_->port());
  first.Send(PostOf("/lost", "grammar 1"));
  second.Send(PostOf("/lost", "grammar 2"));
  ASSERT_TRUE(
      AwaitThat([&] { return losing_.tries("grammar waits for ever") == 2; }));
  leaver->Reset();
  EXPECT_THAT(first.ReceiveAnswer(), EndsWith("answered"));
  EXPECT_THAT(second.ReceiveAnswer(), EndsWith("answered"));
}

}  // namespace
}  // namespace sluice::standby
