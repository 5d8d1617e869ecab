// Answers that keep to a grammar, through the handlers: drawn at random from
// what a sequence's constraint allows, then told apart as a model's would be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/concurrency/turn_queue.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/grammar/walk.h"
#include "tests/services/gateway/fakes.h"
#include "tests/services/gateway/model_formats.h"
#include "tests/testing/test_data.h"

namespace sluice::gateway {
namespace {

using ::sluice::testing::Allows;
using ::sluice::testing::Await;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCity[] = R"({"type":"object","properties":{
    "name":{"type":"string","maxLength":8},
    "rank":{"type":"integer","minimum":1,"maximum":9}},
    "required":["name","rank"],"additionalProperties":false})";

Json ToolOf(const std::string& name, const std::string& schema) {
  Json tool = *ParseJson(R"({"type":"function","function":{}})");
  tool["function"]["name"] = name;
  tool["function"]["parameters"] = *ParseJson(schema);
  return tool;
}

Json WithSchema(const std::string& schema) {
  Json body = *ParseJson(
      R"({"response_format":{"type":"json_schema","json_schema":
          {"name":"x"}}})");
  body["response_format"]["json_schema"]["schema"] = *ParseJson(schema);
  return body;
}

Json WithTools(const Json& choice) {
  Json body = Json::object();
  body["tools"] = Json::array({ToolOf("city", kCity), ToolOf("town", kCity)});
  body["tool_choice"] = choice;
  return body;
}

void ExpectCity(const std::string& text) {
  const Json city = Json::parse(text, nullptr, false);
  ASSERT_TRUE(city.is_object()) << text;
  ASSERT_EQ(city.size(), 2u) << text;
  EXPECT_TRUE(city["name"].is_string()) << text;
  EXPECT_TRUE(city["rank"].is_number_integer()) << text;
}

// The handlers over a model of `format`, which says what its constraints allow.
class Server {
 public:
  explicit Server(const Format& format)
      : model_(MakeToyModel(TemplateOf(format), format.tokens)),
        context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true}; };
    AddRoutes();
  }
  ~Server() { engine_.EndAll(); }

  // Text work goes to `work` from here on.
  void SetWork(TurnQueue* work) {
    context_.work = work;
    router_ = http::Router();
    AddRoutes();
  }

  std::shared_ptr<http::FakeExchange> Chat(Json body) {
    body["messages"] = *ParseJson(R"([{"role":"user","content":"hi"}])");
    auto exchange = http::Post("/v1/chat/completions", DumpJson(body));
    router_.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Complete(const std::string& fields) {
    auto exchange =
        http::Post("/v1/completions", R"({"prompt":"hi",)" + fields + "}");
    router_.Route(exchange);
    return exchange;
  }

  std::shared_ptr<TokenConstraint> ConstraintOf(size_t sequence) {
    return engine_.request(sequence).constraint;
  }
  ConstraintStep FirstStep(size_t sequence) {
    return Await(*ConstraintOf(sequence), {});
  }

  // Plays a sequence: tokens that its constraint allows, and its end. Returns
  // whether the answer is whole.
  bool Play(size_t sequence, uint64_t seed) {
    std::mt19937_64 random(seed);
    const testing::Walk walk = testing::DrawAnswer(
        tokenizer(), model_.vocab_size, model_.eos_ids, *ConstraintOf(sequence),
        random,
        {.max_tokens = 1500,
         .endings = {"</think>", "</arg_value>", "\n</parameter>", "<|end|>",
                     "\"", "}", "\n</tool_call>", "</tool_call>"}});
    EXPECT_TRUE(walk.status.ok()) << walk.status;
    TokenEvent event;
    for (const TokenId id : walk.tokens) event.tokens.push_back({id, {}, {}});
    engine_.Tokens(sequence, std::move(event));
    FinalEvent end;
    end.reason = walk.is_complete ? FinishReason::kStop : FinishReason::kLength;
    if (walk.is_complete) end.stop_token = model_.eos_ids[0];
    engine_.End(sequence, end);
    return walk.is_complete;
  }

  const Tokenizer& tokenizer() const {
    return static_cast<const serving::LoadedText&>(*model_.text).tokenizer();
  }
  TokenId Token(const char* text) const { return *tokenizer().TokenToId(text); }
  Json ErrorOf(const std::shared_ptr<http::FakeExchange>& on) {
    EXPECT_EQ(on->responses.at(0).status, 400);
    return on->Body()["error"];
  }

  serving::ServedModel model_;
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"toy"}};
  serving::ServingContext context_;
  http::Router router_;

 private:
  void AddRoutes() { AddDialects(router_, context_); }
};

// Answers to `body`, each of its own seed: all that are whole are checked.
template <typename Check>
void ForEachAnswer(Server& server, const Json& body, const Check& check) {
  constexpr uint64_t kSeeds = 12;
  int whole = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const size_t sequence = server.engine_.submitted();
    const auto on = server.Chat(body);
    ASSERT_EQ(server.engine_.submitted(), sequence + 1)
        << on->responses.at(0).body;
    if (!server.Play(sequence, seed)) continue;
    ++whole;
    SCOPED_TRACE(DumpJson(on->Body()));
    check(on->Body()["choices"][0]);
  }
  EXPECT_GE(whole, 4);
}

class AnswerGrammarTest : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_TEST_DATA(templates, "templates");
    EXPECT_FALSE(templates.empty());
    server_ = std::make_unique<Server>(GetParam());
  }
  std::unique_ptr<Server> server_;
};

// Of formats whose template takes a chat without tools.
class ContentGrammarTest : public AnswerGrammarTest {};

TEST_P(ContentGrammarTest, ContentFitsTheSchema) {
  ForEachAnswer(*server_, WithSchema(kCity), [](const Json& choice) {
    ExpectCity(choice["message"]["content"]);
    EXPECT_EQ(choice["finish_reason"], "stop");
  });
  EXPECT_THAT(server_->metrics_.Text(),
              HasSubstr("grammar_requests_total{kind=\"json_schema\"} 12"));
}

TEST_P(AnswerGrammarTest, ARequiredCallIsMade) {
  ForEachAnswer(*server_, WithTools("required"), [](const Json& choice) {
    const Json& message = choice["message"];
    ASSERT_TRUE(message.contains("tool_calls"));
    EXPECT_TRUE(message["content"].is_null());
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    for (const Json& call : message["tool_calls"]) {
      ExpectCity(call["function"]["arguments"]);
    }
  });
}

TEST_P(AnswerGrammarTest, ANamedFunctionIsCalledAlone) {
  const Json choice =
      *ParseJson(R"({"type":"function","function":{"name":"town"}})");
  ForEachAnswer(*server_, WithTools(choice), [](const Json& answer) {
    ASSERT_TRUE(answer["message"].contains("tool_calls"));
    ASSERT_EQ(answer["message"]["tool_calls"].size(), 1u);
    EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["name"], "town");
  });
}

TEST_P(AnswerGrammarTest, WithToolsAnAnswerIsCallsOrFittingContent) {
  Json body = WithTools("auto");
  body["response_format"] = WithSchema(kCity)["response_format"];
  ForEachAnswer(*server_, body, [](const Json& choice) {
    const Json& message = choice["message"];
    if (!message.contains("tool_calls")) ExpectCity(message["content"]);
  });
}

TEST_P(AnswerGrammarTest, ToolsThatTheModelMayCallNeedNoGrammar) {
  server_->Chat(WithTools("auto"));
  EXPECT_EQ(server_->ConstraintOf(0), nullptr);
  Json strict = WithTools("auto");
  strict["tools"][0]["function"]["strict"] = true;
  server_->Chat(strict);
  EXPECT_NE(server_->ConstraintOf(1), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Formats, AnswerGrammarTest,
                         ::testing::Values(Glm(), Intellect(), Hermes(),
                                           Harmony(), Llama()),
                         [](const auto& of) { return of.param.name; });

INSTANTIATE_TEST_SUITE_P(Formats, ContentGrammarTest,
                         ::testing::Values(Glm(), Hermes(), Harmony(), Llama()),
                         [](const auto& of) { return of.param.name; });

class GatewayGrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_TEST_DATA(templates, "templates");
    EXPECT_FALSE(templates.empty());
  }
};

TEST_F(GatewayGrammarTest, EachChoiceHasAConstraintOfItsOwn) {
  Server server(Llama());
  const auto on = server.Complete(R"("n":3,"regex":"[ab]{4}","max_tokens":9)");
  ASSERT_EQ(server.engine_.submitted(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(server.ConstraintOf(i), server.ConstraintOf(j));
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(server.Play(i, i));
  const Json answer = on->Body();
  ASSERT_EQ(answer["choices"].size(), 3u);
  for (const Json& choice : answer["choices"]) {
    EXPECT_THAT(choice["text"].get<std::string>(),
                ::testing::MatchesRegex("[ab]{4}"));
  }
}

TEST_F(GatewayGrammarTest, WithoutAGrammarThereIsNoConstraint) {
  Server server(Llama());
  server.Complete(R"("max_tokens":9)");
  EXPECT_EQ(server.ConstraintOf(0), nullptr);
}

TEST_F(GatewayGrammarTest, ReasoningIsFreeUntilItsEnd) {
  Server server(Intellect());  // its prompt opens the reasoning
  Json body = WithTools("auto");
  body["response_format"] = WithSchema(R"({"const":5})")["response_format"];
  server.Chat(body);
  const auto constraint = server.ConstraintOf(0);
  const ConstraintStep free = Await(*constraint, {});
  ASSERT_TRUE(free.mask.has_value());
  EXPECT_TRUE(Allows(*free.mask, 'x'));
  EXPECT_FALSE(Allows(*free.mask, server.model_.eos_ids[0]));
  const TokenId end[] = {server.Token("</think>")};
  const ConstraintStep held = Await(*constraint, end);
  ASSERT_TRUE(held.forced.empty() && held.mask.has_value());
  EXPECT_FALSE(Allows(*held.mask, server.Token("x")));
  EXPECT_TRUE(Allows(*held.mask, server.Token("5")));
  EXPECT_TRUE(Allows(*held.mask, server.Token("<tool_call>")));
}

TEST_F(GatewayGrammarTest, AModelMayReasonUnlessItsPromptClosesThat) {
  Server server(Hermes());
  Json body = WithSchema(R"({"type":"object"})");
  server.Chat(body);
  body["chat_template_kwargs"] = *ParseJson(R"({"enable_thinking":false})");
  server.Chat(body);
  const TokenId think = server.Token("<think>");
  const auto allows = [&](const ConstraintStep& step, TokenId id) {
    return (!step.forced.empty() && step.forced[0] == id) ||
           (step.forced.empty() && step.mask && Allows(*step.mask, id));
  };
  EXPECT_TRUE(allows(server.FirstStep(0), think));
  EXPECT_TRUE(allows(server.FirstStep(0), server.Token("{")));
  EXPECT_FALSE(allows(server.FirstStep(1), think));
  EXPECT_TRUE(allows(server.FirstStep(1), server.Token("{")));
}

TEST_F(GatewayGrammarTest, BadGrammarsAreRefusedByFieldAndKeyword) {
  Server server(Hermes());
  const Json schema = server.ErrorOf(server.Chat(
      WithSchema(R"({"properties":{"a":{"not":{"type":"string"}}}})")));
  EXPECT_EQ(schema["param"], "response_format.json_schema.schema");
  EXPECT_EQ(schema["type"], "invalid_request_error");
  EXPECT_THAT(schema["message"].get<std::string>(), HasSubstr("`not`"));
  EXPECT_THAT(schema["message"].get<std::string>(), HasSubstr("a"));
  const Json regex = server.ErrorOf(server.Complete(R"("guided_regex":"(")"));
  EXPECT_EQ(regex["param"], "guided_regex");
  const Json lark = server.ErrorOf(
      server.Complete(R"("structured_outputs":{"grammar":"start: b"})"));
  EXPECT_EQ(lark["param"], "structured_outputs.grammar");
  EXPECT_EQ(server.engine_.submitted(), 0u);
}

TEST_F(GatewayGrammarTest, AStrictToolNeedsASchemaThatCanBeHeldTo) {
  Server server(Hermes());
  const std::string bad = R"({"type":"object","not":{"type":"string"}})";
  Json body = Json::object();
  body["tools"] = Json::array({ToolOf("odd", bad)});
  body["tool_choice"] = "required";
  ForEachAnswer(server, body, [](const Json& choice) {
    const Json& call = choice["message"]["tool_calls"][0];
    const std::string arguments = call["function"]["arguments"];
    EXPECT_TRUE(Json::parse(arguments, nullptr, false).is_object());
  });
  body["tools"][0]["function"]["strict"] = true;
  const Json error = server.ErrorOf(server.Chat(body));
  EXPECT_EQ(error["param"], "tools");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("tool odd"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("`not`"));
}

// Two branches that overlap: the compiler alone knows.
TEST_F(GatewayGrammarTest, AToolsSchemaThatDoesNotCompileIsNamed) {
  Server server(Hermes());
  const std::string bad = R"({"type":"object","properties":{"a":{"oneOf":[
      {"type":"integer"},{"type":"number"}]}},"required":["a"]})";
  Json body = Json::object();
  body["tools"] = Json::array({ToolOf("odd", bad)});
  body["tool_choice"] = "required";
  ForEachAnswer(server, body, [](const Json& choice) {
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "odd");
  });
  body["tools"][0]["function"]["strict"] = true;
  body["response_format"] = WithSchema(R"({"const":5})")["response_format"];
  body["tool_choice"] = "auto";
  const Json error = server.ErrorOf(server.Chat(body));
  EXPECT_EQ(error["param"], "tools");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("tool odd"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("`oneOf`"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("/properties/a"));
}

TEST_F(GatewayGrammarTest, AContinuedMessageTakesNoRequiredCall) {
  Server server(Llama());
  Json body = WithTools("required");
  body["continue_final_message"] = true;
  EXPECT_EQ(server.ErrorOf(server.Chat(body))["param"],
            "continue_final_message");
}

TEST_F(GatewayGrammarTest, GrammarsAreCompiledOffTheLoop) {
  Server server(Llama());
  TurnQueue work({.threads = 1, .max_queued = 1});
  work.Stop();  // what is sent there is refused
  server.SetWork(&work);
  server.Complete(R"("max_tokens":1)");
  EXPECT_EQ(server.engine_.submitted(), 1u);
  const auto on = server.Complete(R"("regex":"a")");
  EXPECT_EQ(server.engine_.submitted(), 1u);
  EXPECT_EQ(on->responses.size(), 1u);
}

TEST_F(GatewayGrammarTest, AFailedGrammarIsAnErrorAndNeverAStop) {
  Server server(Llama());
  const auto on = server.Complete(R"("regex":"[ab]+")");
  FinalEvent end;
  end.reason = FinishReason::kError;
  // A token that the mask does not have makes it fail.
  const TokenId wrong[] = {server.Token("z")};
  end.status = Await(*server.ConstraintOf(0), wrong).status;
  EXPECT_FALSE(end.status.ok());
  server.engine_.End(0, end);
  const Json error = server.ErrorOf(on);
  EXPECT_EQ(error["param"], "regex");
  EXPECT_EQ(error["code"], "grammar_too_complex");
  EXPECT_THAT(on->responses[0].body, Not(HasSubstr("finish_reason")));
}

}  // namespace
}  // namespace sluice::gateway
