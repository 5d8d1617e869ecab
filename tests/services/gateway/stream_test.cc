// When a stream's header goes out, and what goes out while it is silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kPing[] = ": ping\n\n";
constexpr char kDone[] = "data: [DONE]\n\n";

class GatewayStreamTest : public ::testing::Test {
 protected:
  GatewayStreamTest()
      : context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true, "", {}, 1}; };
    // What is due at once is due for a test whenever it says so.
    context_.rules.stream_times.ping_interval = std::chrono::nanoseconds(1);
    AddDialects(router_, context_);
  }

  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Chat(const std::string& fields) {
    auto exchange =
        http::Post("/v1/chat/completions",
                   Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                       fields.empty() ? "" : ",", fields, "}"));
    router_.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Stream(const std::string& fields = "") {
    return Chat(Cat("\"stream\":true", fields.empty() ? "" : ",", fields));
  }
  void Lose(size_t sequence) {
    FinalEvent end;
    end.reason = FinishReason::kError;
    end.status = Unavailable("stage 1 was lost");
    engine_.End(sequence, std::move(end));
  }

  const serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_;
  http::Router router_;
};

TEST_F(GatewayStreamTest, TheHeaderGoesOutWhenTheSequenceStarts) {
  const auto on = Stream();
  EXPECT_FALSE(on->streaming) << "it waits in the queue";
  engine_.Start(0);
  ASSERT_TRUE(on->streaming);
  EXPECT_EQ(on->responses[0].status, 200);
  EXPECT_EQ(on->responses[0].content_type, "text/event-stream; charset=utf-8");
  EXPECT_THAT(on->chunks, IsEmpty()) << "no event before the first token";
  engine_.Start(0);  // after a preemption
  engine_.Text(0, "a");
  ASSERT_EQ(on->chunks.size(), 1u);
  EXPECT_EQ(on->Events()[0]["choices"][0]["delta"]["role"], "assistant");
}

TEST_F(GatewayStreamTest, TheFirstOfSeveralChoicesOpensTheStream) {
  const auto on = Stream("\"n\":3");
  engine_.Start(1);
  EXPECT_TRUE(on->streaming);
}

TEST_F(GatewayStreamTest, WhoWaitsLongerGetsTheHeaderAllTheSame) {
  const auto on = Stream();
  EXPECT_GT(on->later_delay, seconds(0));
  EXPECT_LE(on->later_delay, seconds(10));
  ASSERT_TRUE(on->RunLater());
  EXPECT_TRUE(on->streaming);
  ASSERT_TRUE(on->RunLater());
  EXPECT_THAT(on->chunks, ElementsAre(kPing)) << "it still waits";
  engine_.Start(0);
  engine_.Text(0, "a");
  EXPECT_EQ(on->Events().size(), 1u);
}

TEST_F(GatewayStreamTest, SilenceAfterTokensIsBrokenToo) {
  const auto on = Stream();
  engine_.Start(0);
  engine_.Text(0, "a");  // and then it is preempted
  ASSERT_TRUE(on->RunLater());
  ASSERT_TRUE(on->RunLater());
  EXPECT_THAT(on->chunks, ElementsAre(StartsWith("data: {"), kPing, kPing));
  engine_.End(0, FinishReason::kLength);
  EXPECT_FALSE(on->has_later()) << "nothing follows the end";
}

TEST_F(GatewayStreamTest, TheRequestSaysHowOften) {
  Stream("\"sse_ping_interval\":7");
  const auto on = Stream("\"sse_ping_interval\":7");
  engine_.Start(1);
  EXPECT_EQ(on->later_delay, seconds(7));
  for (const char* off : {"0", "-1"}) {
    const size_t index = engine_.submitted();
    const auto silent = Stream(Cat("\"sse_ping_interval\":", off));
    engine_.Start(index);
    silent->RunLater();
    EXPECT_FALSE(silent->has_later());
    EXPECT_THAT(silent->chunks, IsEmpty());
  }
}

TEST_F(GatewayStreamTest, AnErrorBeforeTheHeaderKeepsItsStatus) {
  const auto on = Stream();
  Lose(0);
  EXPECT_EQ(on->responses[0].status, 503);
  EXPECT_FALSE(on->streaming);
  EXPECT_FALSE(on->has_later());
  engine_.set_refusal(ResourceExhausted("queue full"));
  EXPECT_EQ(Stream()->responses[0].status, 429);
}

TEST_F(GatewayStreamTest, AnErrorAfterTheHeaderIsAnEventAndThenTheEnd) {
  const auto on = Stream();
  engine_.Start(0);
  Lose(0);
  ASSERT_EQ(on->chunks.size(), 2u);
  EXPECT_EQ(on->Events()[0]["error"]["message"], "stage 1 was lost");
  EXPECT_EQ(on->chunks[1], kDone);
  EXPECT_TRUE(on->ended);
}

TEST_F(GatewayStreamTest, AWholeAnswerIsNotTouched) {
  const auto on = Chat("\"sse_ping_interval\":1");
  engine_.Start(0);
  EXPECT_FALSE(on->streaming);
  EXPECT_FALSE(on->has_later());
  engine_.Text(0, "a");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->responses[0].status, 200);
}

TEST_F(GatewayStreamTest, AClientThatLeftIsAskedNothingMore) {
  const auto on = Stream();
  engine_.Start(0);
  on->Leave(http::Gone::kDisconnected);
  EXPECT_TRUE(engine_.AwaitCancelled(1));
  EXPECT_FALSE(on->RunLater());
  EXPECT_THAT(on->chunks, IsEmpty());
}

TEST_F(GatewayStreamTest, TheTimeToTheFirstTokenIsTheTokens) {
  Stream();
  engine_.Start(0);
  const std::string count =
      "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name="
      "\"fake\"} ";
  EXPECT_EQ(metrics_.Text().find(count + "1"), std::string::npos);
  engine_.Text(0, "a");
  EXPECT_NE(metrics_.Text().find(count + "1"), std::string::npos);
}

}  // namespace
}  // namespace sluice::gateway
