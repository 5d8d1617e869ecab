// A made-up dialect that answers, streams and refuses through the core alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/serving/answer_format.h"
#include "common/serving/endpoint.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/prepare.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/http/fake_exchange.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::sample {
namespace {

// {"said", "tokens"}; as a stream events "piece" and at last "end".
class SayFormat : public serving::AnswerFormat {
 public:
  explicit SayFormat(const serving::AnswerInfo& info) : AnswerFormat(info) {}

  std::vector<serving::EventValue> ChunkValues(int, const serving::Delta& delta,
                                               const serving::Usage&,
                                               serving::JsonPieces&) override {
    if (delta.text.empty()) return {};
    return {{"", {{"text", delta.text}}, "piece"}};
  }
  std::vector<serving::Event> End(const serving::Usage& usage) override {
    return {{"", DumpJson({{"tokens", usage.completion_tokens}}), "end"}};
  }
  std::vector<serving::Event> Fail(const http::ApiError& error) override {
    return {{"", DumpJson({{"sorry", error.message}}), "error"}};
  }
  Json WholeValue(const std::vector<serving::Delta>& choices,
                  const serving::Usage& usage, serving::JsonPieces&) override {
    return {{"said", choices[0].text}, {"tokens", usage.completion_tokens}};
  }

 protected:
  bool ShowsTextAlone(int) const override { return false; }
};

// {"say": TEXT, "most": N, "live": BOOL}.
StatusOr<serving::PreparedRequest> PrepareSay(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const Json body, ParseJson(http.body));
  serving::FieldReader in(body);
  serving::GenerationFields fields;
  const std::string text = in.String("say").value_or("");
  fields.max_tokens = in.Int("most", 1, 1000);
  fields.max_tokens_field = "most";
  fields.stream = in.Bool("live").value_or(false);
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, "/say", fields));
  SLUICE_ASSIGN_OR_RETURN(const auto terms, serving::ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(auto prompt, context.model.text->Encode(text, true));
  serving::PreparedRequest prepared;
  serving::PreparedRequest::Choice choice;
  choice.text = serving::MakeTextOptions(fields);
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate,
      serving::MakeGenerateRequest(context, fields, std::move(prompt),
                                   {"say", /*default_max_tokens=*/16}));
  choice.generate.sampling.seed = start.SeedOf(fields, 0);
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  serving::AddChoices(prepared, std::move(choice), 1, terms);
  serving::AnswerInfo info =
      serving::MakeAnswerInfo(context.model, fields, start, "say-");
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  prepared.format = std::make_unique<SayFormat>(info);
  return prepared;
}

http::HttpResponse Refusal(const http::ApiError& error) {
  http::HttpResponse response;
  response.status = error.http_status;
  response.body = DumpJson({{"sorry", error.message}});
  return response;
}

constexpr serving::Endpoint kSay = {
    "/say",
    [](const serving::ServingContext& context,
       std::shared_ptr<http::Exchange> exchange) {
      serving::PrepareAndRun(context, PrepareSay, std::move(exchange));
    },
    Refusal};

class SampleDialectTest : public ::testing::Test {
 protected:
  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Say(std::string body) {
    auto exchange = http::Post(kSay.path, std::move(body));
    kSay.Run({model_, engine_.loop(), metrics_, nullptr,
              [] { return serving::Readiness{true}; }},
             exchange);
    return exchange;
  }

  const serving::ServedModel model_ = gateway::FakeModel();
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"fake"}};
};

TEST_F(SampleDialectTest, Answers) {
  const auto on = Say(R"({"say":"hello","most":2})");
  EXPECT_EQ(engine_.request(0).max_tokens, 2);
  engine_.Text(0, "hi");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->responses.at(0).body, R"({"said":"hi","tokens":2})");
}

TEST_F(SampleDialectTest, Streams) {
  const auto on = Say(R"({"say":"hello","live":true})");
  engine_.Start(0);
  engine_.Text(0, "h");
  engine_.Text(0, "i");
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(on->chunks,
              ::testing::ElementsAre("event: piece\ndata: {\"text\":\"h\"}\n\n",
                                     "event: piece\ndata: {\"text\":\"i\"}\n\n",
                                     "event: end\ndata: {\"tokens\":2}\n\n"));
  EXPECT_TRUE(on->ended);
}

TEST_F(SampleDialectTest, RefusesBeforeAndWithinAStream) {
  const auto refused = Say(R"({"say":"hello","most":0})");
  EXPECT_EQ(refused->responses.at(0).status, 400);
  EXPECT_EQ(
      refused->responses.at(0).body,
      R"({"sorry":"most: must be an integer from 1 to 1000, got the number 0"})");
  const auto on = Say(R"({"say":"hello","live":true})");
  engine_.Start(0);
  engine_.Text(0, "h");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, std::move(end));
  EXPECT_EQ(on->chunks.back(),
            "event: error\ndata: {\"sorry\":\"stage 1 was lost\"}\n\n");
}

}  // namespace
}  // namespace sluice::sample
