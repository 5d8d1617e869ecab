#include "common/standby/peer_gateways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/mutex.h"
#include "common/http/api_keys.h"
#include "common/http/error_answer.h"
#include "common/http/http_server.h"
#include "common/standby/stage_order.h"
#include "tests/http/fake_exchange.h"

namespace sluice::standby {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// An exchange whose answer comes from another thread.
class QueuedExchange : public http::FakeExchange {
 public:
  using FakeExchange::FakeExchange;
  void Post(std::function<void()> work) override {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  // False: nothing was posted.
  bool RunQueued() {
    std::vector<std::function<void()>> due;
    {
      MutexLock lock(mutex_);
      due.swap(queue_);
    }
    for (const auto& work : due) work();
    return !due.empty();
  }

 private:
  Mutex mutex_;
  std::vector<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

// A gateway beside a peer, whose page /readyz is `peer_says_`.
class PeerGatewaysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    http::HttpServerOptions peer;
    peer.listen = "127.0.0.1:0";
    peer.handler = [this](std::shared_ptr<http::Exchange> on) {
      http::HttpResponse response;
      if (on->request().path == "/readyz") ++probes_;
      response.body = on->request().path == "/readyz"
                          ? peer_says_
                          : Cat("{\"of\":\"the peer\",\"key\":\"",
                                on->request().Header("authorization"), "\"}");
      if (!peer_stages_.empty()) {
        response.headers.emplace_back(
            "X-Sluice-Stages",
            AnswerToStages(on->request().Header("x-sluice-stages"),
                           peer_stages_));
      }
      on->Send(std::move(response));
    };
    auto started = http::HttpServer::Start(std::move(peer));
    ASSERT_TRUE(started.ok()) << started.status();
    peer_ = std::move(*started);
    PeerOptions options;
    options.addresses = {Cat("127.0.0.1:", peer_->port())};
    options.stages = own_stages_;
    options.secret_file = secret_file_;
    auto peers = PeerGateways::Start(options, MakeParts());
    ASSERT_TRUE(peers.ok()) << peers.status();
    peers_ = std::move(*peers);
  }
  PeerGateways::Parts MakeParts() {
    PeerGateways::Parts parts;
    parts.role = [this] { return role_.load(); };
    parts.draining = [this] { return drains_.load(); };
    parts.down = [this] { return down_.load(); };
    parts.screen = [this](http::HttpRequest& request) {
      return keys_ ? keys_->Screen(request) : std::nullopt;
    };
    parts.asks_for_keys = keys_ != nullptr;
    parts.serve = [this](std::shared_ptr<http::Exchange> on) {
      served_ = on->request().headers;
      if (superseded_.exchange(false)) {
        role_ = GatewayRole::kStandby;
        return on->SendError({.http_status = 503, .code = "superseded"});
      }
      on->Send({200, "text/plain", {}, "served here"});
    };
    parts.is_plain = [](const http::HttpRequest&) { return true; };
    parts.feed = [](std::shared_ptr<http::Exchange> on) {
      on->Send({200, "text/plain", {}, "the streams"});
    };
    parts.on_stream = [](const std::string&) {};
    return parts;
  }
  void TearDown() override {
    peers_->Stop();
    peer_.reset();
    for (const auto& exchange : exchanges_) {
      while (exchange->RunQueued()) {
      }
    }
  }

  std::shared_ptr<QueuedExchange> Exchange(const std::string& path,
                                           http::HttpHeaders headers = {}) {
    http::HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.headers = std::move(headers);
    exchanges_.push_back(std::make_shared<QueuedExchange>(std::move(request)));
    return exchanges_.back();
  }
  // The answer's body, from here or from the peer.
  std::string Answer(const std::shared_ptr<QueuedExchange>& exchange) {
    peers_->Route(exchange);
    return Await(exchange);
  }
  static std::string Await(const std::shared_ptr<QueuedExchange>& exchange) {
    const TimePoint end = Clock::now() + std::chrono::seconds(10);
    while (exchange->responses.empty() && Clock::now() < end) {
      exchange->RunQueued();
    }
    return exchange->responses.empty() ? "" : exchange->responses[0].body;
  }
  template <typename Condition>
  static bool AwaitThat(Condition holds) {
    const TimePoint end = Clock::now() + std::chrono::seconds(20);
    while (!holds() && Clock::now() < end) {
    }
    return holds();
  }
  bool AwaitLead(PeerLead lead) const {
    return AwaitThat([&] { return peers_->lead() == lead; });
  }
  // Both gateways anew.
  void StartAgain(std::vector<std::string> peer_stages, std::string says) {
    peers_->Stop();
    peers_.reset();
    peer_.reset();
    peer_stages_ = std::move(peer_stages);
    peer_says_ = std::move(says);
    SetUp();
  }
  bool AwaitWhy(const char* words) const {
    return AwaitThat(
        [&] { return peers_->Judge({}).why.find(words) != std::string::npos; });
  }
  bool KnowsLeader() const {
    const TimePoint end = Clock::now() + std::chrono::seconds(10);
    while (peers_->Judge({}).leader.empty() && Clock::now() < end) {
    }
    return !peers_->Judge({}).leader.empty();
  }

  std::string peer_says_ = R"({"ready":true,"role":"leader","term":3})";
  std::vector<std::string> own_stages_ = {"a:1", "b:1"}, peer_stages_;
  std::string secret_file_;
  std::unique_ptr<http::ApiKeys> keys_;  // null: no request needs one
  std::atomic<GatewayRole> role_{GatewayRole::kStandby};
  std::atomic<bool> drains_{false}, superseded_{false};
  std::atomic<std::chrono::seconds> down_{std::chrono::seconds(0)};
  std::atomic<int> probes_{0};
  http::HttpHeaders served_;
  std::vector<std::shared_ptr<QueuedExchange>> exchanges_;
  std::unique_ptr<http::HttpServer> peer_;
  std::unique_ptr<PeerGateways> peers_;
};

TEST_F(PeerGatewaysTest, AStandbyAnswersForItselfAloneAndForwardsTheRest) {
  for (const char* path :
       {"/livez", "/readyz", "/health", "/ping", "/metrics"}) {
    EXPECT_EQ(Answer(Exchange(path)), "served here") << path;
  }
  for (const char* path : {"/v1/models", "/cluster", "/", "/none"}) {
    EXPECT_THAT(Answer(Exchange(path)), HasSubstr("of\":\"the peer")) << path;
  }
  role_ = GatewayRole::kLeader;
  EXPECT_EQ(Answer(Exchange("/v1/models")), "served here");
}

TEST_F(PeerGatewaysTest, AStandbyThatDrainsTakesNothingNew) {
  drains_ = true;
  const auto late = Exchange("/v1/models");
  EXPECT_THAT(Answer(late), HasSubstr("about to end"));
  EXPECT_EQ(late->responses[0].status, 503);
  EXPECT_THAT(late->responses[0].headers, Contains(Pair("Retry-After", "1")));
  EXPECT_EQ(Answer(Exchange("/livez")), "served here");
}

// A gateway whose clients need a key.
class KeyedPeersTest : public PeerGatewaysTest {
 protected:
  void SetUp() override {
    auto keys = http::ApiKeys::FromText("alice:secret-of-alice", "the test");
    ASSERT_TRUE(keys.ok()) << keys.status();
    keys_ = std::move(*keys);
    PeerGatewaysTest::SetUp();
  }
};

TEST_F(KeyedPeersTest, TheKeyIsForTheLeaderAndNotForTheHandlers) {
  const auto screened = [&](const char* key) {
    auto exchange = Exchange("/v1/models", {{"authorization", key}});
    const auto refused = peers_->Screen(exchange->request());
    EXPECT_EQ(refused.has_value(), std::string(key) == "Bearer wrong");
    return exchange;
  };
  screened("Bearer wrong");
  EXPECT_THAT(Answer(screened("Bearer secret-of-alice")),
              HasSubstr("\"key\":\"Bearer secret-of-alice\""));
  role_ = GatewayRole::kLeader;
  const auto exchange = screened("Bearer secret-of-alice");
  EXPECT_EQ(exchange->request().tenant, "alice");
  EXPECT_EQ(Answer(exchange), "served here");
  EXPECT_TRUE(served_.empty());
}

TEST_F(KeyedPeersTest, AWrongKeyDoesNotGoOn) {
  // The path needs no key, and may carry a wrong one.
  auto exchange = Exchange("/docs", {{"authorization", "Bearer wrong"}});
  EXPECT_FALSE(peers_->Screen(exchange->request()).has_value());
  EXPECT_THAT(Answer(exchange), HasSubstr("\"key\":\"\""));
}

// Gateways that share a secret.
class SecretPeersTest : public KeyedPeersTest {
 protected:
  void SetUp() override {
    secret_file_ = Cat(::testing::TempDir(), "peers-", ::getpid());
    std::ofstream(secret_file_) << "of-these-gateways-alone\n";
    ::chmod(secret_file_.c_str(), 0600);
    KeyedPeersTest::SetUp();
  }
  // A request as a gateway with `secret` passes it on for `client`.
  std::shared_ptr<QueuedExchange> PassedOn(const std::string& path,
                                           const char* secret,
                                           const std::string& client) {
    auto exchange = Exchange(
        path, {{"x-sluice-forwarded", "1"}, {"x-forwarded-for", client}});
    http::HttpRequest& request = exchange->request();
    request.peer = "10.0.0.1";
    request.headers.emplace_back("x-sluice-peer",
                                 PeerSecret(secret).Prove(request, client));
    return exchange;
  }
};

TEST_F(SecretPeersTest, WrongKeysCountAgainstTheClientThatAPeerNames) {
  role_ = GatewayRole::kLeader;
  const auto status_of = [&](const char* key, const char* secret,
                             const char* client) {
    auto exchange = PassedOn("/v1/models", secret, client);
    exchange->request().headers.emplace_back("authorization", key);
    const auto refused = peers_->Screen(exchange->request());
    return refused ? refused->status : 200;
  };
  constexpr char kShared[] = "of-these-gateways-alone";
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(status_of("Bearer wrong", kShared, "192.0.2.1"), 401) << i;
  }
  EXPECT_EQ(status_of("Bearer wrong", kShared, "192.0.2.1"), 429);
  EXPECT_EQ(status_of("Bearer secret-of-alice", kShared, "192.0.2.1"), 200);
  EXPECT_EQ(status_of("Bearer wrong", kShared, "192.0.2.2"), 401);
  // Who has no secret names no other client.
  for (int i = 0; i < 10; ++i) {
    const std::string claimed = Cat("192.0.2.", 100 + i);
    ASSERT_EQ(
        status_of("Bearer wrong", "guessed-it-not-quite", claimed.c_str()),
        401);
  }
  EXPECT_EQ(status_of("Bearer wrong", "guessed-it-not-quite", "192.0.2.99"),
            429);
}

TEST_F(SecretPeersTest, StreamsAreForPeersAlone) {
  role_ = GatewayRole::kLeader;
  auto rogue = PassedOn("/peer/streams", "guessed-it-not-quite", "unknown");
  rogue->request().headers.emplace_back("authorization",
                                        "Bearer secret-of-alice");
  const auto refused = peers_->Screen(rogue->request());
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 404);
  auto peer = PassedOn("/peer/streams", "of-these-gateways-alone", "unknown");
  EXPECT_FALSE(peers_->Screen(peer->request()).has_value());
  EXPECT_EQ(Answer(peer), "the streams");
  role_ = GatewayRole::kStandby;
  peer = PassedOn("/peer/streams", "of-these-gateways-alone", "unknown");
  EXPECT_FALSE(peers_->Screen(peer->request()).has_value());
  EXPECT_THAT(Answer(peer), HasSubstr("no_leader"));
}

TEST_F(PeerGatewaysTest, WithoutASecretNobodyGetsTheStreams) {
  role_ = GatewayRole::kLeader;
  auto exchange = Exchange(
      "/peer/streams", {{"x-sluice-forwarded", "1"}, {"x-sluice-peer", ""}});
  const auto refused = peers_->Screen(exchange->request());
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 404);
}

TEST_F(PeerGatewaysTest, OfTwoOrdersOfStagesOneGoesOn) {
  StartAgain({"b:1", "a:1"}, "{}");
  ASSERT_TRUE(AwaitWhy("b:1,a:1")) << peers_->Judge({}).why;
  EXPECT_THAT(peers_->Judge({}).why, HasSubstr("this gateway's a:1,b:1"));
  EXPECT_TRUE(AwaitLead(PeerLead::kNone)) << "it is the first";
  own_stages_ = {"b:1", "a:1"};
  StartAgain({"a:1", "b:1"}, "{}");
  ASSERT_TRUE(AwaitWhy("another order"));
  EXPECT_THAT(peers_->Judge({}).open_why, Not(HasSubstr("a:1")));
  // Some rounds more.
  const int asked = probes_;
  ASSERT_TRUE(AwaitThat([&] { return probes_ >= asked + 5; }));
  EXPECT_EQ(peers_->lead(), PeerLead::kUnknown);
}

TEST_F(PeerGatewaysTest, AStandbyIsNotReadyIfItsLeaderHasAnotherOrder) {
  StartAgain({"b:1", "a:1"}, R"({"role":"leader","pipeline":"up"})");
  ASSERT_TRUE(AwaitWhy("b:1,a:1"));
  EXPECT_FALSE(peers_->Judge({}).ready);
  EXPECT_TRUE(AwaitLead(PeerLead::kUp));
  StartAgain({"a:1", "b:1"}, R"({"role":"leader","pipeline":"up"})");
  EXPECT_TRUE(AwaitThat([&] { return peers_->Judge({}).ready; }));
}

TEST_F(PeerGatewaysTest, OtherStagesAreToldOf) {
  StartAgain({"a:1", "c:1"}, "{}");
  EXPECT_TRUE(AwaitWhy("others than"));
  EXPECT_TRUE(AwaitLead(PeerLead::kNone));
}

TEST_F(PeerGatewaysTest, WhatAPeerPassesOnIsNotPassedOnAgain) {
  const http::HttpHeaders mark = {{"x-sluice-forwarded", "1"}};
  const auto declined = Exchange("/v1/models", mark);
  EXPECT_THAT(Answer(declined), HasSubstr("\"code\":\"no_leader\""));
  EXPECT_EQ(declined->responses[0].status, 503);
  EXPECT_EQ(Answer(Exchange("/readyz", mark)), "served here");
  role_ = GatewayRole::kLeader;
  EXPECT_EQ(Answer(Exchange("/v1/models", mark)), "served here");
  drains_ = true;
  EXPECT_THAT(Answer(Exchange("/v1/models", mark)), HasSubstr("no_leader"));
  EXPECT_EQ(Answer(Exchange("/v1/models")), "served here")
      << "a client's own request gets the handlers' refusal";
}

TEST_F(PeerGatewaysTest, ASupersededAnswerIsThePeers) {
  role_ = GatewayRole::kLeader;
  superseded_ = true;
  const auto exchange =
      Exchange("/v1/models", {{"authorization", "Bearer of-alice"}});
  peers_->Route(exchange);
  EXPECT_TRUE(exchange->responses.empty());
  EXPECT_THAT(Await(exchange), HasSubstr("\"key\":\"Bearer of-alice\""));
  ASSERT_EQ(exchange->responses.size(), 1u);
}

TEST_F(PeerGatewaysTest, AStandbyIsReadyWhileItKnowsALeader) {
  ASSERT_TRUE(KnowsLeader());
  Standing standing = peers_->Judge({});
  EXPECT_TRUE(standing.ready);
  EXPECT_EQ(standing.why, "");
  EXPECT_EQ(standing.role, GatewayRole::kStandby);
  EXPECT_EQ(standing.leader, Cat("127.0.0.1:", peer_->port()));
  drains_ = true;
  standing = peers_->Judge({});
  EXPECT_FALSE(standing.ready);
  EXPECT_EQ(standing.why, "") << "the gateway itself says that it drains";
  role_ = GatewayRole::kLeader;
  EXPECT_EQ(peers_->Judge({}).role, GatewayRole::kLeader);
}

TEST_F(PeerGatewaysTest, APeersPipelineTellsWhetherItsStagesAreLeftToIt) {
  for (const auto& [pipeline, lead] :
       {std::pair("up", PeerLead::kUp),
        std::pair("recovering", PeerLead::kRecovering),
        std::pair("lost", PeerLead::kNone)}) {
    peers_->Stop();
    peers_.reset();
    peer_.reset();
    peer_says_ =
        Cat(R"({"role":"leader","term":3,"pipeline":")", pipeline, "\"}");
    SetUp();
    EXPECT_TRUE(KnowsLeader()) << pipeline;
    EXPECT_TRUE(AwaitLead(lead)) << pipeline;
  }
  EXPECT_EQ(peers_->Judge({}).pipeline, "") << "a standby";
  role_ = GatewayRole::kLeader;
  EXPECT_EQ(peers_->Judge({.is_up = true}).pipeline, "up");
  EXPECT_EQ(peers_->Judge({.missing = std::chrono::seconds(8)}).pipeline,
            "recovering");
  EXPECT_EQ(peers_->Judge({.missing = std::chrono::seconds(9)}).pipeline,
            "lost");
}

TEST_F(PeerGatewaysTest, ALeaderWithoutAPipelineAsksTheOthers) {
  StartAgain({}, R"({"role":"leader","term":3,"pipeline":"up"})");
  role_ = GatewayRole::kLeader;
  down_ = std::chrono::seconds(3);
  EXPECT_TRUE(AwaitLead(PeerLead::kUp));
  EXPECT_EQ(Answer(Exchange("/v1/models")), "served here");
  down_ = std::chrono::seconds(0);
  EXPECT_TRUE(AwaitLead(PeerLead::kNone)) << "what they said does not last";
}

TEST_F(PeerGatewaysTest, APeerLeadsByItsOwnWordAlone) {
  for (const char* says : {"", "no JSON", "[]", R"({"role":7})",
                           R"({"role":"standby","term":9})"}) {
    peers_->Stop();
    peers_.reset();
    peer_.reset();
    peer_says_ = says;
    SetUp();
    // A third question comes after the answer to the second one.
    const int asked = probes_;
    ASSERT_TRUE(AwaitThat([&] { return probes_ >= asked + 3; }));
    ASSERT_EQ(peers_->Judge({}).leader, "") << says;
    EXPECT_TRUE(AwaitLead(PeerLead::kNone)) << says;
    EXPECT_EQ(peers_->Judge({}).why, "no gateway leads");
  }
}

}  // namespace
}  // namespace sluice::standby
