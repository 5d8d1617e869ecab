// Work on a request's text: deadlines, exceptions, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/exception_counts.h"
#include "common/concurrency/turn_queue.h"
#include "common/dialects/openai/answer.h"
#include "common/serving/request_runner.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

class ExhaustedParser : public OutputParser {
 public:
  OutputEvents Feed(TokenId, std::string_view) override {
    throw std::bad_alloc();
  }
  OutputEvents Finish(OutputEnd) override { return {}; }
};

// A text side that runs out of memory, if it is told to.
class ExhaustedText : public serving::FakeText {
 public:
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool special) const override {
    if (exhausted) throw std::bad_alloc();
    return serving::FakeText::Encode(text, special);
  }
  bool exhausted = false;
};

class TextWorkTest : public ::testing::Test {
 protected:
  TextWorkTest()
      : context_{model_, engine_.loop(), metrics_, &queue_,
                 [] { return serving::Readiness{true}; }} {
    auto text = std::make_unique<ExhaustedText>();
    text_ = text.get();
    text_->quick = false;
    model_.text = std::move(text);
    AddDialects(router_, context_);
  }
  // A request and its exchange hold each other until the sequences end.
  ~TextWorkTest() override {
    queue_.Stop();
    engine_.EndAll();
  }

  std::shared_ptr<http::FakeExchange> Complete(
      const std::string& client = "a") {
    auto on = http::Post("/v1/completions", "{\"prompt\":\"a\"}");
    on->request().client = client;
    router_.Route(on);
    return on;
  }

  serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  TurnQueue queue_{{.threads = 1, .max_queued = 2}};
  serving::ServingContext context_;
  http::Router router_;
  ExhaustedText* text_ = nullptr;
};

TEST_F(TextWorkTest, AnExceptionIsOneRequestsTrouble) {
  text_->exhausted = true;
  const uint64_t before = ExceptionsAt("text");
  for (const bool quick : {true, false}) {
    text_->quick = quick;
    const auto on = Complete();
    if (!quick) queue_.Stop();
    ASSERT_EQ(on->responses.size(), 1u);
    EXPECT_EQ(on->responses[0].status, 503);
    EXPECT_EQ(on->Body()["error"]["message"], "text: out of memory");
  }
  EXPECT_EQ(ExceptionsAt("text"), before + 2);
}

TEST_F(TextWorkTest, AnAnswerThatThrowsEndsWithAnErrorAndItsSequence) {
  const uint64_t before = ExceptionsAt("answer");
  serving::PreparedRequest prepared;
  prepared.choices.emplace_back();
  prepared.choices[0].generate.prompt_tokens = {'a'};
  prepared.choices[0].text.parser = std::make_shared<ExhaustedParser>();
  prepared.format = openai::MakeCompletionFormat(*model_.text, {});
  const auto on = http::Post("/v1/completions", "");
  serving::RequestRunner::Start(context_, std::move(prepared), on);
  ASSERT_EQ(engine_.submitted(), 1u);
  engine_.Text(0, "a");
  ASSERT_EQ(on->responses.size(), 1u);
  EXPECT_EQ(on->responses[0].status, 503);
  EXPECT_TRUE(engine_.AwaitCancelled(1));
  EXPECT_EQ(ExceptionsAt("answer"), before + 1);
}

TEST_F(TextWorkTest, ADeadlineIsLookedAtBeforeABodyIsRead) {
  auto on = http::Post("/v1/completions", "{\"prompt\":\"a\"}");
  on->request().headers = {{"x-request-timeout", "1"}};
  on->request().arrival -= std::chrono::seconds(2);
  router_.Route(on);
  queue_.Stop();
  ASSERT_EQ(on->responses.size(), 1u);
  EXPECT_EQ(on->responses[0].status, 504);
  EXPECT_EQ(engine_.submitted(), 0u);
}

TEST_F(TextWorkTest, AFullQueueRefusesAndCountsAndTakesAnotherClient) {
  std::atomic<bool> held{true};
  std::atomic<bool> begun{false};
  ASSERT_TRUE(queue_
                  .Push({.run =
                             [&] {
                               begun = true;
                               while (held) std::this_thread::yield();
                             }})
                  .ok());
  while (!begun) std::this_thread::yield();
  Complete();
  Complete();
  const auto refused = Complete();
  ASSERT_EQ(refused->responses.size(), 1u);
  EXPECT_EQ(refused->responses[0].status, 429);
  const auto other = Complete("b");
  EXPECT_TRUE(other->responses.empty());
  held = false;
  EXPECT_TRUE(engine_.AwaitSubmitted(3));
  EXPECT_THAT(
      metrics_.Text(),
      HasSubstr("sluice_gateway_rejections_total{reason=\"queue_full\"} 1"));
}

}  // namespace
}  // namespace sluice::gateway
