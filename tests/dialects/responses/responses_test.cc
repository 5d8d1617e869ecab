// Whole answers and streams of /v1/responses, without sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/concurrency/turn_queue.h"
#include "common/dialects/responses/handlers.h"
#include "common/dialects/responses/stored.h"
#include "common/http/router.h"
#include "common/serving/answer_store.h"
#include "common/serving/dialect.h"
#include "common/serving/prepare.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/grammar/walk.h"
#include "tests/http/fake_exchange.h"
#include "tests/services/gateway/fakes.h"
#include "tests/services/gateway/model_formats.h"

namespace sluice::responses {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr serving::Dialect kDialects[] = {kDialect};

constexpr char kTemplate[] =
    "{%- if tools %}{%- for t in tools %}{{ t | tojson }}\n{%- endfor %}"
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
    "{%- endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>"
    "\n\n{%- endif %}{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}"
    "\n</tool_call>{%- endfor %}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}";

constexpr char kAgentTools[] = R"([
  {"type": "namespace", "name": "multi", "description": "Many.", "tools": [
    {"type": "function", "name": "close", "description": "Ends one.",
     "parameters": {"type": "object", "properties": {"id": {"type": "string"}},
                    "required": ["id"]}}]},
  {"type": "custom", "name": "patch", "description": "Patches.", "format": {
    "type": "grammar", "syntax": "lark",
    "definition": "start: \"+\" /(.*)/ LF\n%import common.LF"}}])";

// The output of a model: it thinks, speaks and calls both tools.
constexpr char kOutput[] =
    "<think>\nNeed it.\n</think>\n\nLet me.\n"
    "<tool_call>\n{\"name\": \"multi__close\", \"arguments\": {\"id\": "
    "\"a\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": "
    "\"+\\\"x\\\"\\n\"}}\n</tool_call>";

std::string NameOf(const std::string& chunk) {
  const size_t begin = chunk.find("event: ") + 7;
  return chunk.substr(begin, chunk.find('\n', begin) - begin);
}
Json DataOf(const std::string& chunk) {
  const size_t begin = chunk.find("data: ") + 6;
  const auto data =
      ParseJson(chunk.substr(begin, chunk.find('\n', begin) - begin));
  EXPECT_TRUE(data.ok()) << chunk;
  return data.ok() ? *data : Json();
}
std::string IdOf(const std::string& chunk) {
  const size_t begin = chunk.find("id: ");
  if (begin == chunk.npos) return "";
  return chunk.substr(begin + 4, chunk.find('\n', begin) - begin - 4);
}

// The events of a stream; its first chunk has several.
std::vector<std::string> EventsOf(const http::FakeExchange& on) {
  std::string all;
  for (const std::string& chunk : on.chunks) all += chunk;
  std::vector<std::string> events;
  while (!all.empty()) {
    const size_t end = all.find("\n\n");
    events.push_back(all.substr(0, end) + "\n");
    all.erase(0, end == all.npos ? end : end + 2);
  }
  return events;
}

class ResponsesTest : public ::testing::Test {
 protected:
  ResponsesTest()
      : model_(gateway::MakeToyModel(kTemplate, gateway::Hermes().tokens,
                                     {"hermes", "auto"})) {
    rules_.event_ids = false;
  }
  void TearDown() override { engine_.EndAll(); }

  serving::ServingContext Context() {
    serving::ServingContext context{model_, engine_.loop(), metrics_, nullptr,
                                    [] { return serving::Readiness{true}; }};
    context.rules = rules_;
    context.answers = answers_;
    return context;
  }
  std::shared_ptr<http::FakeExchange> Ask(Json body, std::string id = "",
                                          std::string_view path = kPath) {
    if (!body.contains("input")) body["input"] = "Hi";
    auto exchange = http::Post(path, DumpJson(body));
    exchange->format = kDialect.format;
    if (!id.empty()) {
      exchange->request().headers.emplace_back("last-event-id", std::move(id));
    }
    http::Router router;
    serving::AddDialects(kDialects, router, Context());
    router.Route(exchange);
    return exchange;
  }
  Json WithTools(const char* members = "{}") {
    Json body = *ParseJson(members);
    body["tools"] = *ParseJson(kAgentTools);
    return body;
  }
  void Say(size_t sequence, const std::string& output) {
    const auto tokens = model_.text->Encode(output, /*special=*/true);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    for (const TokenId token : *tokens) {
      TokenEvent event;
      event.tokens = {{token, TokenLogprob{token, -0.5f, 0}, {}}};
      engine_.Tokens(sequence, event);
    }
  }
  void Stop(size_t sequence) {
    FinalEvent end;
    end.stop_token = 256;
    engine_.End(sequence, end);
  }
  std::shared_ptr<http::FakeExchange> Answer(const Json& body,
                                             const std::string& output,
                                             const std::string& id = "") {
    const size_t sequence = engine_.submitted();
    auto exchange = Ask(body, id);
    EXPECT_EQ(engine_.submitted(), sequence + 1)
        << (exchange->responses.empty() ? "" : exchange->responses[0].body);
    if (engine_.submitted() == sequence) return exchange;
    Say(sequence, output);
    Stop(sequence);
    return exchange;
  }

  const serving::ServedModel model_;
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"toy"}};
  serving::RequestRules rules_;
  serving::AnswerStore* answers_ = nullptr;
};

TEST_F(ResponsesTest, AnswersWhole) {
  const Json response = Answer(WithTools(), kOutput)->Body();
  EXPECT_EQ(response["id"], "resp_test");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["tools"].size(), 2u);
  EXPECT_EQ(response["parallel_tool_calls"], true);
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  const Json& output = response["output"];
  ASSERT_EQ(output.size(), 4u) << DumpJson(output);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_THAT(output[0]["content"][0]["text"].get<std::string>(),
              HasSubstr("Need it."));
  EXPECT_EQ(output[0]["summary"], Json::array());
  EXPECT_THAT(output[1]["content"][0]["text"].get<std::string>(),
              HasSubstr("Let me."));
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "close");
  EXPECT_EQ(output[2]["namespace"], "multi");
  EXPECT_EQ(output[2]["arguments"], R"({"id": "a"})");
  EXPECT_EQ(output[3]["type"], "custom_tool_call");
  EXPECT_EQ(output[3]["name"], "patch");
  EXPECT_EQ(output[3]["input"], "+\"x\"\n");
  std::set<std::string> ids;
  for (const Json& item : output) ids.insert(item["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 4u);
}

TEST_F(ResponsesTest, StreamsTheWholeAnswerInOrder) {
  const Json whole = Answer(WithTools(), kOutput)->Body();
  const auto on = Answer(WithTools(R"({"stream":true})"), kOutput);
  EXPECT_TRUE(on->ended);
  std::vector<std::string> names;
  std::map<std::string, std::string> texts;  // of deltas, by item
  const std::vector<std::string> events = EventsOf(*on);
  for (size_t i = 0; i < events.size(); ++i) {
    const Json event = DataOf(events[i]);
    const std::string name = NameOf(events[i]);
    EXPECT_EQ(event["type"], name);
    EXPECT_EQ(event["sequence_number"], i);
    if (name.ends_with(".delta")) {
      texts[event["item_id"]] += event["delta"].get<std::string>();
    }
    if (name.ends_with(".done") && event.contains("item_id") &&
        !event.contains("part")) {
      const char* const member = event.contains("text")    ? "text"
                                 : event.contains("input") ? "input"
                                                           : "arguments";
      EXPECT_EQ(event[member], texts[event["item_id"]]) << name;
    }
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  EXPECT_THAT(
      names,
      ElementsAre("response.created", "response.in_progress",
                  "response.output_item.added", "response.content_part.added",
                  "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta",
                  "response.function_call_arguments.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.custom_tool_call_input.delta",
                  "response.custom_tool_call_input.done",
                  "response.output_item.done", "response.completed"));
  Json last = DataOf(on->chunks.back())["response"];
  for (const char* member : {"created_at", "completed_at"}) {
    last[member] = whole[member];
  }
  const auto without_ids = [](Json response) {
    for (Json& item : response["output"]) item.erase("call_id");
    return response;
  };
  EXPECT_EQ(without_ids(last), without_ids(whole));
}

TEST_F(ResponsesTest, ASummaryIsToldIfAskedFor) {
  const auto on = Answer(
      WithTools(R"({"stream":true,"reasoning":{"summary":"auto"}})"), kOutput);
  std::set<std::string> names;
  for (const std::string& event : EventsOf(*on)) names.insert(NameOf(event));
  for (const char* name : {"response.reasoning_summary_part.added",
                           "response.reasoning_summary_text.delta",
                           "response.reasoning_summary_text.done",
                           "response.reasoning_summary_part.done"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("response.reasoning_text.delta"));
  const Json item = DataOf(on->chunks.back())["response"]["output"][0];
  EXPECT_EQ(item["summary"][0]["type"], "summary_text");
  EXPECT_EQ(item["content"], Json::array());
}

TEST_F(ResponsesTest, KeepsASilentStreamAlive) {
  rules_.stream_times.ping_interval = std::chrono::nanoseconds(1);
  const auto on = Ask(*ParseJson(R"({"stream":true})"));
  ASSERT_TRUE(on->RunLater());  // the wait for the header is over
  std::string head;
  for (const std::string& event : EventsOf(*on)) head += event;
  EXPECT_THAT(head, HasSubstr("event: response.created"));
  EXPECT_THAT(head, HasSubstr("event: response.in_progress"));
  ASSERT_TRUE(on->RunLater());
  EXPECT_EQ(on->chunks.back(),
            "event: keepalive\n"
            "data: {\"type\":\"keepalive\",\"sequence_number\":2}\n\n");
}

TEST_F(ResponsesTest, AnIncompleteAnswerSaysSo) {
  const auto on = Ask(*ParseJson(R"({"stream":true,"max_output_tokens":4})"));
  Say(0, "Oh, ");
  engine_.End(0, FinishReason::kLength);
  const Json response = DataOf(on->chunks.back())["response"];
  EXPECT_EQ(NameOf(on->chunks.back()), "response.incomplete");
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesTest, ALostStageEndsInAFailedResponse) {
  const auto on = Ask(*ParseJson(R"({"stream":true})"));
  Say(0, "Oh");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, std::move(end));
  EXPECT_EQ(NameOf(on->chunks.back()), "response.failed");
  const Json event = DataOf(on->chunks.back());
  EXPECT_EQ(event["sequence_number"], EventsOf(*on).size() - 1);
  EXPECT_EQ(event["response"]["status"], "failed");
  EXPECT_EQ(event["response"]["error"]["code"], "server_error");
  EXPECT_EQ(event["response"]["output"][0]["content"][0]["text"], "Oh");
  EXPECT_TRUE(on->ended);
}

TEST_F(ResponsesTest, ErrorsHaveTheCodesThatClientsRead) {
  http::ApiError error;
  error.http_status = 429;
  error.message = "busy";
  error.retry_after_seconds = 3;
  EXPECT_EQ(ResponseError(error)["code"], "rate_limit_exceeded");
  EXPECT_THAT(ResponseError(error)["message"].get<std::string>(),
              HasSubstr("try again in 3s"));
  error.http_status = 400;
  error.code = "context_length_exceeded";
  EXPECT_EQ(ResponseError(error)["code"], "context_length_exceeded");
  error.code = "grammar_too_complex";
  EXPECT_EQ(ResponseError(error)["code"], "invalid_prompt");
  EXPECT_THAT(StreamError(error, {}), HasSubstr("\"type\":\"error\""));
  EXPECT_THAT(StreamError(error, {}), Not(HasSubstr("\"error\":{")));
}

TEST_F(ResponsesTest, RefusesBeforeAStreamAsOpenAi) {
  const auto refused = Ask(*ParseJson(R"({"stream":true,"temperature":9})"));
  ASSERT_EQ(refused->responses.size(), 1u);
  EXPECT_EQ(refused->responses[0].status, 400);
  EXPECT_EQ(refused->Body()["error"]["param"], "temperature");
  engine_.set_max_context(4);
  const auto long_one = Ask(*ParseJson(R"({"input":"a long text"})"));
  EXPECT_EQ(long_one->Body()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(long_one->Body()["error"]["param"], "input");
}

TEST_F(ResponsesTest, GoesOnBehindAnyEvent) {
  rules_.event_ids = true;
  const Json body = WithTools(R"({"stream":true})");
  const auto whole = EventsOf(*Answer(body, kOutput));
  const auto told_by = [](const std::vector<std::string>& chunks) {
    std::vector<std::string> lines;
    for (const std::string& chunk : chunks) {
      Json event = DataOf(chunk);
      event.erase("sequence_number");
      if (event.contains("response")) event["response"].erase("completed_at");
      const std::string name = NameOf(chunk);
      if (name.ends_with(".delta") && !lines.empty() &&
          lines.back().starts_with(name)) {
        lines.back() += event["delta"].get<std::string>();
      } else if (name.ends_with(".delta")) {
        lines.push_back(name + event["delta"].get<std::string>());
      } else {
        lines.push_back(DumpJson(event));
      }
    }
    return lines;
  };
  const auto expected = told_by(whole);
  for (size_t told = 1; told < whole.size(); told += 3) {
    const std::string id = IdOf(whole[told - 1]);
    ASSERT_FALSE(id.empty()) << whole[told - 1];
    const auto rest = EventsOf(*Answer(body, kOutput, id));
    std::vector<std::string> both(whole.begin(),
                                  whole.begin() + static_cast<long>(told));
    EXPECT_EQ(DataOf(rest.front())["sequence_number"], told);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(told_by(both), expected) << "behind event " << told;
  }
}

TEST_F(ResponsesTest, TellsLogprobsIfAskedFor) {
  const Json response =
      Answer(*ParseJson(R"({"include":["message.output_text.logprobs"]})"),
             "<think>\n\n</think>\n\nOh")
          ->Body();
  const Json& part = response["output"].back()["content"][0];
  EXPECT_EQ(part["type"], "output_text");
  ASSERT_GE(part["logprobs"].size(), 2u) << DumpJson(response["output"]);
  EXPECT_EQ(part["logprobs"].back()["token"], "h");
  EXPECT_EQ(part["logprobs"].back()["logprob"], -0.5);
}

TEST_F(ResponsesTest, CountsTokens) {
  const auto on = Ask(WithTools(), "", "/v1/responses/input_tokens");
  EXPECT_EQ(on->Body()["object"], "response.input_tokens");
  EXPECT_EQ(engine_.submitted(), 0u);
  const int64_t tokens = on->Body()["input_tokens"];
  Ask(WithTools());
  EXPECT_EQ(static_cast<int64_t>(engine_.request(0).prompt_tokens.size()),
            tokens);
}

// The same key goes on with a response, reads it and deletes it.
TEST_F(ResponsesTest, KeepsResponsesOfTheirKey) {
  serving::AnswerStore store({.max_bytes = 1 << 20});
  answers_ = &store;
  const auto first = Answer(*ParseJson(R"({"input":"First."})"), "Oh.");
  EXPECT_EQ(first->Body()["store"], true);
  const auto on = [this](std::string method, std::string path,
                         std::string tenant = "") {
    auto exchange = http::Post(path, "");
    exchange->request().method = std::move(method);
    exchange->request().tenant = std::move(tenant);
    const size_t query = path.find('?');
    if (query != path.npos) {
      exchange->request().query = path.substr(query + 1);
      exchange->request().path = path.substr(0, query);
    }
    http::Router router;
    serving::AddDialects(kDialects, router, Context());
    router.Route(exchange);
    return exchange;
  };
  const std::string path = "/v1/responses/resp_test";
  EXPECT_EQ(on("GET", path)->Body(), first->Body());
  EXPECT_EQ(on("GET", path, "other")->responses[0].status, 404);
  const Json items = on("GET", path + "/input_items")->Body();
  EXPECT_EQ(items["object"], "list");
  ASSERT_EQ(items["data"].size(), 1u);
  EXPECT_EQ(items["data"][0]["content"][0]["text"], "First.");
  EXPECT_EQ(items["has_more"], false);
  EXPECT_EQ(on("GET", path + "/input_items?limit=0")->responses[0].status, 400);
  EXPECT_EQ(on("GET", path + "/input_items?after=x")->responses[0].status, 400);
  EXPECT_EQ(on("POST", path + "/cancel")->responses[0].status, 400);
  EXPECT_EQ(on("GET", path + "/other")->responses[0].status, 404);
  Json body = *ParseJson(
      R"({"input":"Second.","previous_response_id":"resp_test","store":false})");
  Ask(body);
  ASSERT_EQ(engine_.submitted(), 2u);
  const auto prompt = model_.text->Decode(engine_.request(1).prompt_tokens,
                                          /*skip_special=*/false);
  ASSERT_TRUE(prompt.ok());
  EXPECT_THAT(*prompt, HasSubstr("userFirst.<|im_end|>"));
  EXPECT_THAT(*prompt, HasSubstr("assistantOh.<|im_end|>"));
  EXPECT_THAT(*prompt, HasSubstr("userSecond.<|im_end|>"));
  EXPECT_EQ(on("DELETE", path)->Body()["deleted"], true);
  EXPECT_EQ(on("GET", path)->responses[0].status, 404);
  EXPECT_EQ(Ask(body)->Body()["error"]["code"], "previous_response_not_found");
}

// A client refers to the items of answers, each once; nobody else's.
TEST_F(ResponsesTest, AReferenceStandsForTheItem) {
  serving::AnswerStore store({.max_bytes = 1 << 20});
  answers_ = &store;
  const Json first = Answer(*ParseJson(R"({"input":"First."})"), "Oh.")->Body();
  const std::string id = first["output"][0]["id"].get<std::string>();
  const Json reference{{"type", "item_reference"}, {"id", id}};
  const auto refer = [](const Json& items) {
    Json input = Json::array({{{"role", "user"}, {"content", "First."}}});
    for (const Json& item : items) input.push_back(item);
    input.push_back({{"role", "user"}, {"content", "Second."}});
    return Json{{"input", std::move(input)}};
  };
  const auto prompt_of = [&](const Json& items) {
    const size_t sequence = engine_.submitted();
    Answer(refer(items), "Oh.");
    return engine_.submitted() > sequence
               ? engine_.request(sequence).prompt_tokens
               : std::vector<TokenId>();
  };
  const auto prompt = prompt_of(first["output"]);
  EXPECT_FALSE(prompt.empty());
  EXPECT_EQ(prompt_of(Json::array({reference})), prompt);
  // What is kept of the second answer has the item itself.
  const auto kept = store.Find("", "resp_test");
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ((*ParseJson((*kept)->items))[1]["content"][0]["text"], "Oh.");
  const auto refused = [&](const Json& items) {
    return Ask(refer(items))->Body()["error"];
  };
  const Json twice = refused(Json::array({reference, reference}));
  EXPECT_EQ(twice["code"], "unsupported_content");
  EXPECT_THAT(twice["message"].get<std::string>(), HasSubstr("input[2]"));
  for (const char* other :
       {"msg_other_0", "msg_test_7", "msg", "", "_", "__"}) {
    const Json error =
        refused(Json::array({Json{{"type", "item_reference"}, {"id", other}}}));
    EXPECT_EQ(error["code"], "item_not_found") << other;
    EXPECT_EQ(error["param"], "input");
  }
  const Json nameless =
      refused(Json::array({Json{{"type", "item_reference"}}}));
  EXPECT_THAT(nameless["message"].get<std::string>(),
              HasSubstr("input[1].id must be a string"));
  ASSERT_TRUE(store.Erase("", "resp_test").ok());
  EXPECT_EQ(refused(Json::array({reference}))["code"], "item_not_found");
}

TEST(ResponsesStoredTest, ReferencesAreForeseen) {
  const auto ids = [](const std::string& body) { return ReferencedIds(body); };
  EXPECT_THAT(ids(R"({"input":[{"type":"item_reference","id":"msg_a_0"},
                     {"id" : "rs_b_1", "type": "item_reference"}]})"),
              ElementsAre("msg_a_0", "rs_b_1"));
  EXPECT_THAT(ids(R"([{"type":"item_reference","id":"a\u005f"}])"),
              ElementsAre());
  EXPECT_THAT(ids(R"("item_reference")"), ElementsAre());
  EXPECT_THAT(ids(R"({"type":"item_reference","id":"a)"), ElementsAre());
  EXPECT_THAT(ids(R"({"type":"item_reference","id":)" + std::string(600, ' ') +
                  R"("a"})"),
              ElementsAre());
  std::string many;
  for (int i = 0; i < 5000; ++i) many += R"({"id":"a","x":"item_reference"})";
  EXPECT_EQ(ids(many).size(), 4096u);
  // Mentions count, whether they are references or not.
  std::string mentions;
  for (int i = 0; i < 5000; ++i) mentions += R"("item_reference",)";
  EXPECT_THAT(ids(mentions + R"({"id":"a","type":"item_reference"})"),
              ElementsAre());
  // An object counts once.
  EXPECT_THAT(ids(R"({"item_reference":"item_reference","id":"a"})"),
              ElementsAre("a"));
}

// What is kept counts like a body: for its thread and for its memory.
TEST_F(ResponsesTest, WhatIsBehindCountsAsText) {
  serving::AnswerStore store({.max_bytes = 1 << 20});
  answers_ = &store;
  const std::string items =
      DumpJson(Json::array({{{"role", "user"}, {"content", "First."}}}));
  store.Put("", "resp_a", {R"({"output":[]})", items + std::string(9000, ' ')});
  const auto behind = [&](const std::string& body) {
    return BytesBehind(Context(), http::Post(kPath, body)->request());
  };
  const size_t bytes = items.size() + 9000 + 13;
  EXPECT_EQ(behind(R"({"previous_response_id":"resp_a"})"), bytes);
  EXPECT_EQ(behind("{\"a\":{},\n\"previous_response_id\" : \"resp_a\" }"),
            bytes);
  EXPECT_EQ(behind(R"({"previous_response_id":"resp_b"})"), 0u);
  EXPECT_EQ(behind(R"({"previous_response_id":null})"), 0u);
  EXPECT_EQ(behind(R"({"input":"previous_response_id"})"), 0u);
  EXPECT_EQ(behind(R"({"previous_response_id":"res)"), 0u);
  EXPECT_EQ(behind(R"({"previous_response_id)"), 0u);
  const std::string reference = R"({"type":"item_reference","id":"msg_a_0"})";
  EXPECT_EQ(behind(reference), 13u);  // of the answer alone, and once
  EXPECT_EQ(behind("[" + reference + "," + reference + "]"), 13u);
  TurnQueue queue({.threads = 1});
  serving::ServingContext context = Context();
  context.work = &queue;
  const auto on = http::Post(kPath, "{}");
  EXPECT_EQ(serving::WorkersFor(context, *on).queue, nullptr);
  EXPECT_EQ(serving::WorkersFor(context, *on, bytes).queue, &queue);
  EXPECT_EQ(serving::TextMemory(*on, bytes),
            serving::TextMemory(*on) / 2 * (bytes + 2));
  Ask(*ParseJson(R"({"previous_response_id":"resp_a"})"));
  EXPECT_EQ(engine_.submitted(), 1u);
  // An id that was not foreseen is not read.
  for (const char* body : {R"({"previous\u005fresponse_id":"resp_a"})",
                           R"({"previous_response_id":"resp\u005fa"})"}) {
    const auto refused = http::Post(kPath, body);
    refused->format = kDialect.format;
    http::Router router;
    serving::AddDialects(kDialects, router, Context());
    router.Route(refused);
    ASSERT_EQ(refused->responses.size(), 1u) << body;
    EXPECT_EQ(refused->responses[0].status, 400);
    EXPECT_EQ(refused->Body()["error"]["param"], "previous_response_id");
    EXPECT_THAT(refused->Body()["error"]["message"].get<std::string>(),
                HasSubstr("no escapes"));
  }
}

// What could not be read again is not kept, and the response says so.
TEST_F(ResponsesTest, KeepsWhatCanBeReadAgain) {
  serving::AnswerStore store({.max_bytes = size_t{64} << 20});
  answers_ = &store;
  const std::string half(size_t{3} << 20, 'a');
  const auto ask = [&](std::string_view previous) {
    Json body{{"previous_response_id", previous},
              {"input", Json::array({{{"type", "later"}, {"text", half}}})}};
    if (previous.empty()) body.erase("previous_response_id");
    return Answer(body, "Oh.")->Body();
  };
  EXPECT_EQ(ask("")["store"], true);
  EXPECT_EQ(ask("resp_test")["store"], true);
  EXPECT_EQ(ask("resp_test")["store"], false);
  // A room of fewer bytes than the response has.
  serving::AnswerStore small({.max_bytes = 600});
  answers_ = &small;
  EXPECT_EQ(Answer(*ParseJson(R"({"input":"a"})"), "Oh.")->Body()["store"],
            false);
  EXPECT_EQ(small.bytes(), 0u);
}

// A stream that is told again brings no deleted response back.
TEST_F(ResponsesTest, AResumedStreamKeepsNothing) {
  serving::AnswerStore store({.max_bytes = 1 << 20});
  answers_ = &store;
  rules_.event_ids = true;
  const Json body = *ParseJson(R"({"stream":true})");
  const auto whole = EventsOf(*Answer(body, "Oh."));
  const auto stored_at_end = [&] {
    const auto rest = EventsOf(*Answer(body, "Oh.", IdOf(whole[2])));
    return DataOf(rest.back())["response"]["store"];
  };
  EXPECT_EQ(stored_at_end(), true);
  ASSERT_TRUE(store.Erase("", "resp_test").ok());
  EXPECT_EQ(stored_at_end(), false);
  EXPECT_FALSE(store.Find("", "resp_test").ok());
}

TEST_F(ResponsesTest, WithoutAStoreNothingIsKept) {
  const auto on = http::Post("/v1/responses/resp_test", "");
  on->request().method = "GET";
  http::Router router;
  serving::AddDialects(kDialects, router, Context());
  router.Route(on);
  EXPECT_EQ(on->responses[0].status, 404);
  EXPECT_THAT(on->responses[0].error->message, HasSubstr("--response-store"));
}

// The string within the call keeps to the tool's grammar.
TEST_F(ResponsesTest, HoldsACustomToolsInput) {
  Ask(WithTools(R"({"tool_choice":{"type":"custom","name":"patch"}})"));
  ASSERT_EQ(engine_.submitted(), 1u);
  const auto constraint = engine_.request(0).constraint;
  ASSERT_NE(constraint, nullptr);
  const std::string call =
      "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"";
  const auto tokens = model_.text->Encode(call, /*special=*/true);
  ASSERT_TRUE(tokens.ok());
  const auto allows = [&](const std::vector<TokenId>& appended,
                          std::string_view bytes) {
    const ConstraintStep& step =
        ::sluice::testing::Await(*constraint, appended);
    EXPECT_TRUE(step.status.ok()) << step.status;
    std::string allowed;
    for (const char byte : bytes) {
      const bool fits =
          !step.forced.empty()
              ? step.forced[0] == byte
              : !step.mask || ::sluice::testing::Allows(*step.mask, byte);
      if (fits) allowed += byte;
    }
    return allowed;
  };
  EXPECT_EQ(allows(*tokens, "+-\""), "+");
  EXPECT_EQ(allows({'+', 'a', '\\', 'n'}, "\"b\\"), "\"");
}

}  // namespace
}  // namespace sluice::responses
