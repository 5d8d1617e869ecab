// Messages over the handlers: answers, streams, counts and refusals, also where
// the server itself refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/messages/handlers.h"
#include "common/serving/event_id.h"
#include "common/serving/request_grammar.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/http/fake_exchange.h"
#include "tests/services/gateway/fakes.h"
#include "tests/serving/toy_text.h"

namespace sluice::messages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

serving::ServedModel ModelThatCalls() {
  auto text = std::make_unique<serving::FakeText>();
  text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
  text->new_parser = [format = text->format](const OutputRequest& request) {
    return NewMarkupParser(format, request,
                           std::make_shared<const ToolTypes>(request.tools));
  };
  serving::ServedModel model = gateway::FakeModel();
  model.text = std::move(text);
  model.digest = "0011223344556677";
  return model;
}

constexpr char kOutput[] =
    "<think>hm</think>so<tool_call>\n{\"name\": \"f\", \"arguments\": "
    "{\"a\": 1}}\n</tool_call>";

class MessagesTest : public ::testing::Test {
 protected:
  ~MessagesTest() override { engine_.EndAll(); }

  serving::ServingContext Context() {
    serving::ServingContext context{model_, engine_.loop(), metrics_, nullptr,
                                    [] { return serving::Readiness{true}; }};
    context.rules = rules_;
    return context;
  }
  std::shared_ptr<http::FakeExchange> Ask(std::string_view method,
                                          std::string_view path,
                                          std::string body,
                                          http::HttpHeaders headers = {}) {
    http::Router router;
    const serving::ServingContext context = Context();
    gateway::AddDialects(router, context);
    gateway::AddModelHandlers(router, context);
    gateway::AddUnbuiltHandlers(router);
    auto exchange = http::Post(path, std::move(body));
    exchange->request().method = method;
    exchange->request().headers = std::move(headers);
    exchange->format = gateway::FormatOf(exchange->request());
    router.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Say(const std::string& more,
                                          http::HttpHeaders headers = {}) {
    return Ask("POST", kMessagesPath,
               Cat(R"({"model":"claude-opus-5-5","messages":)",
                   R"([{"role":"user","content":"hi"}])",
                   more.empty() ? "" : ",", more, "}"),
               std::move(headers));
  }
  void Fail(size_t sequence, Status why) {
    FinalEvent end;
    end.reason = FinishReason::kError;
    end.status = std::move(why);
    engine_.End(sequence, std::move(end));
  }

  serving::ServedModel model_ = ModelThatCalls();
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"fake"}};
  serving::RequestRules rules_;
};

std::vector<std::string> Names(const http::FakeExchange& on) {
  std::vector<std::string> names;
  for (const std::string& chunk : on.chunks) {
    const size_t at = chunk.find("event: ");
    if (at == chunk.npos) continue;
    names.push_back(chunk.substr(at + 7, chunk.find('\n', at) - at - 7));
  }
  return names;
}

// {"type", "message"} of an error's body.
Json ErrorOf(const http::FakeExchange& on) {
  const Json body = on.Body();
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["request_id"], "test");
  return body["error"];
}

TEST_F(MessagesTest, AnswersUnderTheNameThatWasAskedFor) {
  const auto on = Say(R"("max_tokens":99,"tools":[{"name":"f"}])");
  ASSERT_EQ(engine_.submitted(), 1u);
  EXPECT_EQ(engine_.request(0).max_tokens, 99);
  engine_.Text(0, kOutput);
  engine_.End(0, FinishReason::kStop);
  const Json body = on->Body();
  EXPECT_EQ(body["id"], "msg_test");
  EXPECT_EQ(body["model"], "claude-opus-5-5");
  EXPECT_EQ(body["stop_reason"], "tool_use");
  ASSERT_EQ(body["content"].size(), 3u);
  EXPECT_EQ(body["content"][0]["thinking"], "hm");
  EXPECT_EQ(body["content"][1]["text"], "so");
  const Json& call = body["content"][2];
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(call["input"], Json({{"a", 1}}));
  EXPECT_THAT(call["id"].get<std::string>(), ::testing::StartsWith("toolu_"));
}

TEST_F(MessagesTest, StreamsAndFillsASilence) {
  rules_.stream_times.ping_interval = std::chrono::nanoseconds(1);
  const auto on =
      Say(R"("max_tokens":99,"stream":true,"tools":[{"name":"f"}])");
  ASSERT_TRUE(on->RunLater());
  EXPECT_THAT(Names(*on), ElementsAre("message_start"));
  ASSERT_TRUE(on->RunLater());
  EXPECT_THAT(Names(*on), ElementsAre("message_start", "ping"));
  engine_.Text(0, kOutput);
  engine_.End(0, FinishReason::kStop);
  std::vector<std::string> names = Names(*on);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  EXPECT_THAT(names, ElementsAre("message_start", "ping", "content_block_start",
                                 "content_block_delta", "content_block_stop",
                                 "content_block_start", "content_block_delta",
                                 "content_block_stop", "content_block_start",
                                 "content_block_delta", "content_block_stop",
                                 "message_delta", "message_stop"));
  EXPECT_TRUE(on->ended);
}

TEST_F(MessagesTest, GoesOnBehindAnyEvent) {
  const std::string body = R"("max_tokens":99,"stream":true,"seed":1)";
  const auto first = Say(body);
  engine_.Text(0, "hello");
  engine_.End(0, FinishReason::kStop);
  const std::vector<std::string> chunks = first->chunks;
  const auto id_of = [](const std::string& chunk) {
    const size_t begin = chunk.find("id: ") + 4;
    return chunk.substr(begin, chunk.find('\n', begin) - begin);
  };
  for (size_t told = 1; told + 1 < chunks.size(); ++told) {
    const auto on = Say(body, {{"last-event-id", id_of(chunks[told - 1])}});
    const size_t sequence = told;
    ASSERT_EQ(engine_.submitted(), sequence + 1) << on->responses[0].body;
    engine_.Text(sequence, "hello");
    engine_.End(sequence, FinishReason::kStop);
    std::string rest;
    for (size_t i = told; i < chunks.size(); ++i) rest += chunks[i];
    std::string again;
    for (const std::string& chunk : on->chunks) again += chunk;
    EXPECT_EQ(again, rest) << "behind event " << told;
  }
}

TEST_F(MessagesTest, AnErrorWithinAStreamIsItsLastEvent) {
  const auto on = Say(R"("max_tokens":99,"stream":true)");
  engine_.Start(0);
  engine_.Text(0, "h");
  Fail(0, Unavailable("stage 1 was lost"));
  EXPECT_THAT(on->chunks.back(),
              HasSubstr(R"(event: error
data: {"type":"error","error":{"type":"overloaded_error","message":)"
                        R"("stage 1 was lost"},"request_id":"test"})"));
  EXPECT_TRUE(on->ended);
}

TEST_F(MessagesTest, AnErrorBeforeTheStreamIsAnAnswer) {
  for (const char* more :
       {R"("max_tokens":9,"stream":true)", R"("max_tokens":9)"}) {
    const auto on = Say(more);
    Fail(engine_.submitted() - 1, Unavailable("no pipeline"));
    EXPECT_EQ(on->responses.at(0).status, 529) << more;
    EXPECT_EQ(ErrorOf(*on)["type"], "overloaded_error");
  }
}

TEST_F(MessagesTest, TheContextCutsTheAnswerAndNeverRefusesIt) {
  engine_.set_max_context(64);
  const auto on = Say(R"("max_tokens":128000)");
  ASSERT_EQ(engine_.submitted(), 1u);
  EXPECT_LT(engine_.request(0).max_tokens, 64);
  engine_.Text(0, "so");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["stop_reason"], "model_context_window_exceeded");
  const auto fits = Say(R"("max_tokens":2)");
  engine_.Text(1, "so");
  engine_.End(1, FinishReason::kLength);
  EXPECT_EQ(fits->Body()["stop_reason"], "max_tokens");
}

TEST_F(MessagesTest, AgentsReadThatAPromptIsTooLong) {
  engine_.set_max_context(8);
  const auto on = Say(R"("max_tokens":1,"system":"of many words")");
  EXPECT_EQ(on->responses.at(0).status, 400);
  EXPECT_EQ(DumpJson(ErrorOf(*on)),
            R"({"type":"invalid_request_error","message":)"
            R"("prompt is too long: 21 tokens > 8 maximum"})");
  EXPECT_THAT(
      ErrorOf(*Say(Cat(R"("max_tokens":1,"system":")", std::string(1000, 'a'),
                       "\"")))["message"]
          .get<std::string>(),
      ::testing::MatchesRegex("prompt is too long: [0-9]+ tokens > 8 maximum"));
}

TEST_F(MessagesTest, AStopSequenceIsTold) {
  const auto on = Say(R"("max_tokens":9,"stop_sequences":["END"])");
  engine_.Text(0, "so END");
  ASSERT_TRUE(engine_.AwaitCancelled(1));
  const Json body = on->Body();
  EXPECT_EQ(body["content"][0]["text"], "so ");
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "END");
}

TEST_F(MessagesTest, CountsThePrompt) {
  const auto on = Ask("POST", kCountPath,
                      R"({"model":"any","system":"s","messages":)"
                      R"([{"role":"user","content":"hi"}]})");
  // BOS, two turns with a role and the text each, and the turn to come.
  EXPECT_EQ(on->responses.at(0).body, R"({"input_tokens":9})");
  const auto bad = Ask("POST", kCountPath, R"({"model":"any"})");
  EXPECT_EQ(ErrorOf(*bad)["message"], "messages: Field required");
}

TEST_F(MessagesTest, TheBillingHeaderChangesNoPrompt) {
  const auto prompt = [this](const std::string& version) {
    Say(Cat(R"("max_tokens":1,"system":[{"type":"text","text":)",
            R"("x-anthropic-billing-header: cc_version=)", version,
            R"(;"},{"type":"text","text":"You are an agent."}])"));
    return engine_.request(engine_.submitted() - 1).prompt_tokens;
  };
  EXPECT_EQ(prompt("2.1.332.0b8"), prompt("2.1.333.1c9"));
}

TEST_F(MessagesTest, TheTypeOfAnErrorIsTheStatuss) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"},
                                               {401, "authentication_error"},
                                               {403, "permission_error"},
                                               {404, "not_found_error"},
                                               {405, "invalid_request_error"},
                                               {408, "timeout_error"},
                                               {413, "request_too_large"},
                                               {421, "invalid_request_error"},
                                               {429, "rate_limit_error"},
                                               {431, "invalid_request_error"},
                                               {500, "api_error"},
                                               {501, "api_error"},
                                               {503, "overloaded_error"},
                                               {504, "timeout_error"}};
  http::HttpRequest request;
  request.path = "/v1/messages";
  request.request_id = "one";
  for (const auto& [status, type] : types) {
    http::ApiError error;
    error.http_status = status;
    error.message = "why";
    error.retry_after_seconds = 3;
    const auto format = gateway::FormatOf(request);
    const http::HttpResponse response = format.error(error, request);
    EXPECT_EQ(response.status, status == 503 ? 529 : status);
    EXPECT_EQ(response.body, Cat(R"({"type":"error","error":{"type":")", type,
                                 R"(","message":"why"},"request_id":"one"})"));
    if (status == 429 || status == 503) {
      EXPECT_THAT(response.headers, ElementsAre(Pair("Retry-After", "3")));
    } else {
      EXPECT_TRUE(response.headers.empty());
    }
    EXPECT_EQ(format.stream_error(error, request),
              Cat("event: error\ndata: ", response.body, "\n\n"));
    http::HttpHeaders headers;
    format.add_headers(request, {}, headers);
    EXPECT_THAT(headers, ElementsAre(Pair("Request-Id", "one")));
  }
}

TEST_F(MessagesTest, PathOrHeaderTellTheDialect) {
  const auto spoken = [](std::string path, http::HttpHeaders headers = {}) {
    http::HttpRequest request;
    request.path = std::move(path);
    request.headers = std::move(headers);
    return IsSpoken(request);
  };
  EXPECT_TRUE(spoken("/v1/messages"));
  EXPECT_TRUE(spoken("/v1/messages/count_tokens"));
  EXPECT_TRUE(spoken("/v1/messages/batches"));
  EXPECT_TRUE(spoken("/v1/models", {{"anthropic-version", "2023-06-01"}}));
  EXPECT_FALSE(spoken("/v1/models"));
  EXPECT_FALSE(spoken("/v1/messages_of_others"));
  const auto on = Ask("POST", "/v1/messages/batches", "{}");
  EXPECT_EQ(on->responses.at(0).status, 404);
  EXPECT_EQ(ErrorOf(*on)["type"], "not_found_error");
  const auto get = Ask("GET", "/v1/messages", "");
  EXPECT_EQ(get->responses.at(0).status, 405);
  EXPECT_EQ(ErrorOf(*get)["type"], "invalid_request_error");
  const auto bad = Say("");
  EXPECT_EQ(bad->responses.at(0).status, 400);
  EXPECT_EQ(DumpJson(ErrorOf(*bad)),
            R"({"type":"invalid_request_error",)"
            R"("message":"max_tokens: Field required"})");
}

TEST_F(MessagesTest, TheHeaderDecidesWhereNoOtherDialectHasThePath) {
  const auto error = [](std::string path) {
    http::HttpRequest request;
    request.path = std::move(path);
    request.headers = {{"anthropic-version", "2023-06-01"}};
    return gateway::FormatOf(request).error;
  };
  for (const char* path : {"/v1/models", "/v1/messages", "/v1/files", "/"}) {
    EXPECT_EQ(error(path), &WriteError) << path;
  }
  for (const char* path :
       {"/api/chat", "/api/tags", "/api/none", "/v1/responses",
        "/v1/responses/resp_1", "/v1/chat/completions", "/chat/completions",
        "/v1/completions", "/completion", "/completions", "/infill", "/props",
        "/slots", "/apply-template"}) {
    EXPECT_NE(error(path), &WriteError) << path;
  }
}

TEST_F(MessagesTest, ABudgetThatNoTokenCanKeepIsDropped) {
  const auto on = Say(
      R"("max_tokens":9,"thinking":{"type":"enabled","budget_tokens":1024})");
  ASSERT_EQ(engine_.submitted(), 1u);
  EXPECT_EQ(engine_.request(0).constraint, nullptr);
  EXPECT_TRUE(on->responses.empty());
}

TEST_F(MessagesTest, ModelsInAnthropicsForm) {
  model_.aliases = {"claude-fake"};
  model_.created = 1764547200;
  engine_.set_max_context(64);
  const http::HttpHeaders version = {{"anthropic-version", "2023-06-01"}};
  const auto shown = [](const char* name) {
    return Json{{"type", "model"},       {"id", name},
                {"display_name", name},  {"created_at", "2025-12-01T00:00:00Z"},
                {"lifecycle", "active"}, {"max_input_tokens", 64},
                {"max_tokens", 64}};
  };
  const Json list{{"data", {shown("fake"), shown("claude-fake")}},
                  {"has_more", false},
                  {"first_id", "fake"},
                  {"last_id", "claude-fake"}};
  EXPECT_EQ(Ask("GET", "/v1/models", "", version)->Body(), list);
  EXPECT_EQ(Ask("GET", "/v1/models/claude-fake", "", version)->Body(),
            shown("claude-fake"));
  const auto none = Ask("GET", "/v1/models/none", "", version);
  EXPECT_EQ(none->responses.at(0).status, 404);
  EXPECT_EQ(ErrorOf(*none)["type"], "not_found_error");
  EXPECT_EQ(Ask("GET", "/v1/models", "")->Body()["object"], "list");
}

// With a real tokenizer, template and grammar.
TEST_F(MessagesTest, AChosenToolIsHeldByAGrammar) {
  auto text = serving::MakeToyText(
      "{%- if tools %}<tool_call>{{ tools | tojson }}{%- endif %}"
      "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "<|im_end|>\n{%- endfor %}"
      "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}",
      {{"<|im_end|>", "<|im_start|>"}, {"<tool_call>", "</tool_call>"}},
      {"hermes", "none"});
  model_.eos_ids = {256};
  model_.vocab_size = text->tokenizer().vocab_size();
  serving::AddGrammars(text->tokenizer(), {}, model_);
  model_.text = std::move(text);
  for (const char* choice :
       {R"({"type":"any","disable_parallel_tool_use":true})",
        R"({"type":"tool","name":"f"})"}) {
    const size_t sequence = engine_.submitted();
    const auto on = Say(Cat(R"("max_tokens":99,"tools":[{"name":"f",)",
                            R"("input_schema":{}}],"tool_choice":)", choice));
    ASSERT_EQ(engine_.submitted(), sequence + 1) << on->responses[0].body;
    EXPECT_NE(engine_.request(sequence).constraint, nullptr) << choice;
  }
  Say(R"("max_tokens":99,"tools":[{"name":"f"}])");
  EXPECT_EQ(engine_.request(2).constraint, nullptr);
}

}  // namespace
}  // namespace sluice::messages
