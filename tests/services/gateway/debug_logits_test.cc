// POST /debug/logits over a scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "common/concurrency/turn_queue.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

class DebugLogitsTest : public ::testing::Test {
 protected:
  DebugLogitsTest() { AddDebugHandlers(router_, context_); }

  // A request and its exchange hold each other until the sequences end.
  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Route(std::string body) {
    auto exchange = http::Post("/debug/logits", std::move(body));
    router_.Route(exchange);
    return exchange;
  }

  const serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_{model_, engine_.loop(), metrics_, nullptr,
                                   [] { return serving::Readiness{true}; }};
  http::Router router_;
};

TEST_F(DebugLogitsTest, LogitsComeAsRows) {
  const auto on = Route("{\"prompt\":[1,2]}");
  EXPECT_TRUE(engine_.request(0).sampling.return_logits);
  EXPECT_EQ(engine_.request(0).max_tokens, 0);
  TokenEvent event;
  event.logits.assign(2 * serving::kFakeVocab, 0.1f);
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  const Json body = on->Body();
  EXPECT_EQ(DumpJson(body["ids"]), "[1,2]");
  ASSERT_EQ(body["logits"].size(), 2u);
  EXPECT_EQ(body["logits"][1].size(), size_t{serving::kFakeVocab});
  EXPECT_EQ(DumpJson(body["logits"][1][5]), "0.1");
  EXPECT_EQ(Route("{\"prompt\":[999]}")->responses[0].status, 400);
}

TEST_F(DebugLogitsTest, LogitsAreReadAndWrittenOffTheLoop) {
  TurnQueue work({.threads = 1, .max_queued = 4});
  context_.work = &work;
  http::Router router;
  AddDebugHandlers(router, context_);
  std::atomic<bool> held{true};
  const auto hold = [&held] {
    while (held) std::this_thread::yield();
  };
  ASSERT_TRUE(work.Push({.run = hold}).ok());
  const auto on = http::Post(
      "/debug/logits", Cat("{", std::string(9000, ' '), "\"prompt\":[1,2]}"));
  router.Route(on);
  EXPECT_EQ(engine_.submitted(), 0u);
  held = false;
  EXPECT_TRUE(engine_.AwaitSubmitted(1));
  held = true;
  EXPECT_TRUE(work.Push({.run = hold}).ok());
  TokenEvent event;
  event.logits.assign(2 * serving::kFakeVocab, 0.1f);
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_TRUE(on->responses.empty());
  held = false;
  work.Stop();
  EXPECT_EQ(on->Body()["logits"].size(), 2u);
}

TEST_F(DebugLogitsTest, LogitsComeAsBytesIfAskedFor) {
  const auto on = http::Post("/debug/logits", "{\"prompt\":\"hi\"}");
  on->request().headers = {{"accept", "application/octet-stream"}};
  router_.Route(on);
  TokenEvent event;
  event.logits.assign(3 * serving::kFakeVocab, 0.5f);
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->responses[0].content_type, "application/octet-stream");
  EXPECT_EQ(on->responses[0].body.size(),
            3 * serving::kFakeVocab * sizeof(float));
}

TEST_F(DebugLogitsTest, JsonHasFewerRowsThanBytes) {
  serving::ServedModel wide = FakeModel();
  wide.vocab_size = 10'000'000;  // two rows: 80 MB
  serving::ServingContext context{wide, engine_.loop(), metrics_, nullptr,
                                  [] { return serving::Readiness{true}; }};
  http::Router router;
  AddDebugHandlers(router, context);
  const auto text = http::Post("/debug/logits", "{\"prompt\":[1,2]}");
  router.Route(text);
  EXPECT_EQ(text->responses[0].status, 400);
  EXPECT_THAT(text->responses[0].body,
              ::testing::HasSubstr("limit 67108864 (more as application"));
  const auto bytes = http::Post("/debug/logits", "{\"prompt\":[1,2]}");
  bytes->request().headers = {{"accept", "application/octet-stream"}};
  router.Route(bytes);
  EXPECT_EQ(engine_.submitted(), 1u);
}

TEST_F(DebugLogitsTest, AnErrorIsToldAlsoWhileTheQueueIsFull) {
  TurnQueue work({.threads = 1, .max_queued = 1});
  context_.work = &work;
  http::Router router;
  AddDebugHandlers(router, context_);
  const auto on = http::Post("/debug/logits", "{\"prompt\":[1,2]}");
  router.Route(on);
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  std::atomic<bool> held{true};
  const auto hold = [&held] {
    while (held) std::this_thread::yield();
  };
  while (work.Push({.run = hold}).ok()) {
  }
  FinalEvent lost;
  lost.reason = FinishReason::kError;
  lost.status = Unavailable("stage 1 is lost");
  engine_.End(0, std::move(lost));
  EXPECT_THAT(on->responses[0].body, ::testing::HasSubstr("stage 1 is lost"));
  held = false;
  work.Stop();
}

}  // namespace
}  // namespace sluice::gateway
