// A stream that was cut goes on: by Last-Event-ID, or by its request's id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/serving/event_id.h"
#include "common/serving/stream_journal.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/services/gateway/fakes.h"
#include "tests/testing/representative.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLastChunk[] = "data: [DONE]\n\n";

serving::ServedModel ModelThatCalls() {
  auto text = std::make_unique<serving::FakeText>();
  text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
  text->new_parser = [format = text->format](const OutputRequest& request) {
    return NewMarkupParser(format, request,
                           std::make_shared<const ToolTypes>(request.tools));
  };
  serving::ServedModel model = FakeModel();
  model.text = std::move(text);
  model.digest = "0011223344556677";
  return model;
}

// A model's answer as a function of (seed, choice), in events of random sizes.
class SeededPlayer {
 public:
  FinalEvent operator()(const GenerateRequest& request, TokenSink& sink) {
    sink.OnStart();
    TokenEvent event;
    for (const TokenId token : serving::Bytes(
             Cat("<think>as ", request.sampling.seed, "</think>It is ",
                 request.sampling.choice,
                 ".<tool_call>{\"name\": \"look\", \"arguments\": {\"at\": \"",
                 request.sampling.seed, "\"}}</tool_call>"))) {
      event.tokens.push_back(serving::WithLogprob(token, -0.5f));
      if (random_() % 3 == 0) sink.OnTokens(std::exchange(event, {}));
    }
    if (!event.tokens.empty()) sink.OnTokens(std::move(event));
    FinalEvent end;
    end.stop_token = serving::kFakeEos;
    end.stop_result = serving::WithLogprob(serving::kFakeEos, -0.25f);
    return end;
  }

 private:
  std::mt19937 random_{5};
};

// A gateway of its own; its journal tells its hook.
struct Gateway {
  explicit Gateway(bool keys = false,
                   serving::StreamJournal::Options journal = {})
      : streams(journal, [this](const serving::StreamJournal::Entry& entry) {
          told.push_back(entry);
        }) {
    serving::ServingContext context{model, engine.loop(), metrics, nullptr, {}};
    context.readiness = [] { return serving::Readiness{true, "", {}, 1}; };
    context.keys_asked = keys;
    context.streams = &streams;
    context.arithmetic = [this] { return arithmetic; };
    AddDialects(router, context);
  }
  ~Gateway() { engine.EndAll(); }

  std::shared_ptr<http::FakeExchange> Run(
      std::shared_ptr<http::FakeExchange> on) {
    router.Route(on);
    engine.Play();
    return on;
  }

  serving::ServedModel model = ModelThatCalls();
  std::string arithmetic = "f32-canonical-3 f32";
  ScriptedEngine engine{SeededPlayer()};
  GatewayMetrics metrics{{"fake"}};
  std::vector<serving::StreamJournal::Entry> told;
  serving::StreamJournal streams;
  http::Router router;
};

std::shared_ptr<http::FakeExchange> Ask(const std::string& path,
                                        const std::string& body,
                                        const std::string& last = "") {
  auto on = http::Post(path, body);
  on->request().request_id = http::RandomId();
  if (!last.empty()) on->request().headers = {{"last-event-id", last}};
  return on;
}

std::shared_ptr<http::FakeExchange> Get(const std::string& id,
                                        const std::string& tenant = "",
                                        const std::string& last = "") {
  auto on = Ask("/v1/streams/" + id, "", last);
  on->request().method = "GET";
  on->request().tenant = tenant;
  return on;
}

std::string IdOf(const std::string& chunk) {
  const size_t line = chunk.rfind("\nid: ");
  if (line == std::string::npos) return "";
  return chunk.substr(line + 5, chunk.size() - line - 5 - 2);
}

// What the chunks tell, without regard to how they are cut into events.
struct Told {
  Json heads = Json::array();  // ids and times, each once
  std::string texts;           // of one choice after the other
  int events = 0;
  bool operator==(const Told& other) const {
    return heads == other.heads && texts == other.texts;
  }
};

Told Join(const std::vector<std::string>& chunks) {
  Told told;
  std::vector<std::map<std::string, std::string>> choices(8);
  for (const std::string& chunk : chunks) {
    if (chunk == kLastChunk || chunk.starts_with(":")) continue;
    ++told.events;
    // The data is whole before its id comes.
    EXPECT_TRUE(chunk.starts_with("data: {")) << chunk;
    const Json event =
        *ParseJson(std::string_view(chunk).substr(6, chunk.find('\n') - 6));
    Json head = event;
    head.erase("choices");
    if (told.heads.empty() || told.heads.back() != head) {
      told.heads.push_back(head);
    }
    for (const Json& choice : event["choices"]) {
      auto& texts = choices[choice["index"].get<size_t>()];
      const Json delta = choice.value("delta", Json::object());
      texts["text"] += choice.value("text", "");
      for (const char* name : {"role", "content", "reasoning_content"}) {
        if (delta.contains(name) && delta[name].is_string()) {
          texts[name] += delta[name];
        }
      }
      if (delta.contains("tool_calls")) {
        const Json& call = delta["tool_calls"][0];
        texts["id"] += call.value("id", "");
        texts["call"] += call["function"].value("name", "");
        texts["call"] += call["function"]["arguments"];
      }
      if (choice["logprobs"].is_object()) {
        for (const Json& entry :
             choice["logprobs"].value("content", Json::array())) {
          texts["logprobs"] += DumpJson(entry);
        }
      }
      if (!choice["finish_reason"].is_null()) {
        texts["finish"] += choice["finish_reason"];
      }
    }
  }
  for (const auto& texts : choices) {
    for (const auto& [name, text] : texts)
      told.texts += name + "=" + text + ";";
  }
  return told;
}

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kChatBody[] =
    R"({"messages": [{"role": "user", "content": "hi"}], "stream": true,
        "n": 2, "logprobs": true, "top_logprobs": 1, "max_tokens": 500,
        "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": {"name": "look"}}]})";
// The same request, as another client writes it.
constexpr char kSameBody[] =
    R"({"tools":[{"type":"function","function":{"name":"look"}}],"n":2.0,
        "top_logprobs":1,"logprobs":true,"model":"fake","user":"me","stream":true,
        "stream_options":{"include_usage":true},"seed":null,"max_tokens":500,
        "messages":[{"content":"hi","role":"user"}]})";

TEST(ResumeTest, AnotherGatewayGivesTheRestOfAnyCutStream) {
  Gateway first;
  const auto whole = first.Run(Ask(kChat, kChatBody));
  ASSERT_EQ(whole->chunks.back(), kLastChunk);
  const Told want = Join(whole->chunks);
  EXPECT_THAT(want.texts, HasSubstr("finish=tool_calls;"));
  EXPECT_GT(want.events, 30);
  const size_t step = sluice::testing::OnlyRepresentative() ? 29 : 3;
  for (size_t cut = 1; cut < whole->chunks.size();
       cut += cut + step + 1 < whole->chunks.size() ? step : 1) {
    Gateway second;  // with other sizes of events
    for (size_t i = 0; i < cut % 7; ++i) second.Run(Ask(kChat, kChatBody));
    std::vector<std::string> chunks(
        whole->chunks.begin(),
        whole->chunks.begin() + static_cast<std::ptrdiff_t>(cut));
    // What came behind the last id is told again.
    while (IdOf(chunks.back()).empty()) chunks.pop_back();
    const auto rest = second.Run(
        Ask(kChat, cut % 2 == 0 ? kChatBody : kSameBody, IdOf(chunks.back())));
    ASSERT_EQ(rest->responses[0].status, 200) << rest->responses[0].body;
    EXPECT_EQ(rest->request().request_id, whole->request().request_id);
    chunks.insert(chunks.end(), rest->chunks.begin(), rest->chunks.end());
    EXPECT_EQ(Join(chunks), want) << IdOf(whole->chunks[cut - 1]);
    EXPECT_EQ(chunks.back(), kLastChunk);
    if (cut + 1 == whole->chunks.size()) {
      EXPECT_EQ(rest->chunks.size(), 1u) << "nothing but [DONE] is left";
    }
  }
}

TEST(ResumeTest, EveryPromptHasASeedOfItsOwnAgain) {
  Gateway first, second;
  const std::string body =
      R"({"prompt": ["a", "a"], "stream": true, "max_tokens": 200})";
  const auto whole = first.Run(Ask("/v1/completions", body));
  EXPECT_NE(first.engine.request(0).sampling.seed,
            first.engine.request(1).sampling.seed);
  const auto rest = second.Run(Ask(
      "/v1/completions", body, IdOf(whole->chunks[whole->chunks.size() / 2])));
  for (const size_t prompt : {0u, 1u}) {
    EXPECT_EQ(second.engine.request(prompt).sampling.seed,
              first.engine.request(prompt).sampling.seed);
  }
  EXPECT_THAT(rest->chunks.back(), kLastChunk);
}

TEST(ResumeTest, TheSeedOfTheClientIsEveryPrompts) {
  Gateway gateway;
  gateway.Run(Ask("/v1/completions",
                  R"({"prompt": ["a", "b"], "seed": 7, "stream": true})"));
  EXPECT_EQ(gateway.engine.request(0).sampling.seed, 7u);
  EXPECT_EQ(gateway.engine.request(1).sampling.seed, 7u);
}

TEST(ResumeTest, AnAnswerThatWasWholeCostsNothing) {
  Gateway first, second;
  const auto whole = first.Run(Ask(kChat, kChatBody));
  const auto rest = second.Run(
      Ask(kChat, kChatBody, IdOf(whole->chunks[whole->chunks.size() - 2])));
  EXPECT_THAT(rest->chunks, ::testing::ElementsAre(kLastChunk));
  EXPECT_EQ(second.engine.submitted(), 0u);
}

TEST(ResumeTest, AnIdOfAnotherRequestIsRefused) {
  Gateway gateway;
  const auto whole = gateway.Run(Ask(kChat, kChatBody));
  const std::string id = IdOf(whole->chunks[3]);
  const size_t submitted = gateway.engine.submitted();
  const auto error_of = [&](const std::string& path, std::string body,
                            const std::string& last) {
    const auto on = gateway.Run(Ask(path, body, last));
    EXPECT_EQ(on->responses[0].status, 400);
    const Json error = on->Body()["error"];
    EXPECT_EQ(error["param"], "Last-Event-ID");
    EXPECT_EQ(error["code"], "invalid_event_id");
    return error["message"].get<std::string>();
  };
  std::string other = kChatBody;
  other.replace(other.find("hi"), 2, "ho");
  EXPECT_THAT(error_of(kChat, other, id), HasSubstr("another request"));
  other = kChatBody;
  other.replace(other.find("\"n\": 2"), 6, "\"n\": 3");
  EXPECT_THAT(error_of(kChat, other, id), HasSubstr("another request"));
  EXPECT_THAT(
      error_of("/v1/completions", R"({"prompt": "hi", "stream": true})", id),
      HasSubstr("another request"));
  EXPECT_THAT(error_of(kChat, kChatBody, id + ".0"), HasSubstr("3 choices"));
  EXPECT_THAT(error_of(kChat, kChatBody, "garbage"), HasSubstr("no ~"));
  other = kChatBody;
  other.replace(other.find("\"stream\": true"), 14, "\"stream\": false");
  other.replace(other.find("\"stream_options\""), 16, "\"x\"");
  EXPECT_THAT(error_of(kChat, other, id), HasSubstr("\"stream\": true"));
  EXPECT_EQ(gateway.engine.submitted(), submitted);
  // Another model; other arithmetic.
  Gateway changed;
  changed.model.digest = "9911223344556677";
  EXPECT_EQ(changed.Run(Ask(kChat, kChatBody, id))->responses[0].status, 400);
  Gateway coarser;
  coarser.arithmetic = "bf16-amx-1 bf16";
  const auto refused = coarser.Run(Ask(kChat, kChatBody, id));
  EXPECT_EQ(refused->responses[0].status, 400);
  EXPECT_THAT(refused->Body()["error"]["message"].get<std::string>(),
              HasSubstr("arithmetic"));
}

TEST(ResumeTest, BeforeTheFirstPipelineNothingIsResumed) {
  Gateway first, second;
  const auto whole = first.Run(Ask(kChat, kChatBody));
  second.arithmetic = "";
  const auto refused =
      second.Run(Ask(kChat, kChatBody, IdOf(whole->chunks[3])));
  EXPECT_EQ(refused->responses[0].status, 503) << "a client comes again";
  EXPECT_EQ(second.engine.submitted(), 0u);
  const auto plain = second.Run(Ask(kChat, kChatBody));
  EXPECT_EQ(IdOf(plain->chunks[0]), "");
  EXPECT_EQ(second.streams.figures().streams, 0u);
}

// An id that is known as text: a change of its parts, or of what the
// fingerprint takes, shows here. Then kAnswersVersion rises.
TEST(ResumeTest, AnIdIsTheSameInEveryRelease) {
  Gateway gateway;
  auto on = Ask(kChat, std::string(kChatBody).insert(1, "\"seed\": 7, "));
  on->request().request_id = "golden";
  on->request().headers = {{"x-request-id", "golden"}};
  gateway.Run(on);
  std::string id = IdOf(on->chunks[0]);
  EXPECT_EQ(id.replace(1, 6, "TIME.."),
            "bTIME..AAAAAAAAAAH9BsM82Pwgolden~0e2.");
}

// Keeps the times that its templates are rendered for.
class DatedText : public serving::FakeText {
 public:
  StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const Json& tools,
      RenderOptions options) const override {
    seen.push_back(options.now);
    return FakeText::EncodeChat(messages, tools, std::move(options));
  }
  mutable std::vector<std::optional<int64_t>> seen;
};

TEST(ResumeTest, ATemplateGetsTheTimeOfTheFirstRequest) {
  Gateway gateway;
  const std::string body =
      R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";
  auto text = std::make_unique<DatedText>();
  const DatedText& dated = *text;
  gateway.model.text = std::move(text);
  const auto whole = gateway.Run(Ask(kChat, body));
  ASSERT_EQ(dated.seen.size(), 1u);
  EXPECT_EQ(dated.seen[0], whole->Events()[0]["created"].get<int64_t>());
  // As if it had begun a day before.
  serving::EventId id = *serving::ParseEventId(IdOf(whole->chunks[0]));
  id.origin.created -= 86400;
  gateway.Run(Ask(kChat, body,
                  Cat(serving::EventIdHead(id.origin, id.fingerprint), "~",
                      serving::ProgressText(id.progress))));
  ASSERT_EQ(dated.seen.size(), 2u);
  EXPECT_EQ(dated.seen[1], *dated.seen[0] - 86400);
}

TEST(ResumeTest, APageThatConnectsAgainAtTheEndIsToldToStop) {
  Gateway gateway;
  const auto whole = gateway.Run(Ask(kChat, kChatBody));
  const auto again =
      gateway.Run(Get(whole->request().request_id, "",
                      IdOf(whole->chunks[whole->chunks.size() - 2])));
  EXPECT_EQ(again->responses[0].status, 204);
  EXPECT_EQ(again->responses[0].body, "");
  EXPECT_FALSE(again->streaming);
  EXPECT_EQ(gateway.engine.submitted(), 2u);
}

// The engine refuses it: its request is not kept.
TEST(ResumeTest, ARefusedRequestIsNotKept) {
  Gateway gateway;
  gateway.engine.loop().BeginDrain();
  const auto refused = gateway.Run(Ask(kChat, kChatBody));
  EXPECT_EQ(refused->responses[0].status, 503);
  EXPECT_EQ(gateway.streams.figures().streams, 0u);
}

TEST(ResumeTest, APlaceThatTheAnswerDoesNotHaveIsAnError) {
  Gateway gateway;
  const auto whole = gateway.Run(Ask(kChat, kChatBody));
  const std::string id = IdOf(whole->chunks[3]);
  const auto on = gateway.Run(
      Ask(kChat, kChatBody, id.substr(0, id.find('~') + 1) + "99999.0"));
  ASSERT_GE(on->chunks.size(), 2u);
  const std::string& error = on->chunks[on->chunks.size() - 2];
  EXPECT_THAT(error, HasSubstr("beyond the end of the answer"));
  EXPECT_THAT(error, HasSubstr("Last-Event-ID"));
  EXPECT_EQ(IdOf(error), "") << "what the client has is as before";
}

TEST(ResumeTest, AClientsOwnIdAndTheBodysComeBack) {
  Gateway first, second;
  std::string body = kChatBody;
  body.insert(1, R"("request_id": "from-body", )");
  for (const bool header : {false, true}) {
    auto on = Ask(kChat, body);
    if (header) {
      on->request().request_id = "mine";
      on->request().headers = {{"x-request-id", "mine"}};
    }
    first.Run(on);
    auto again = Ask(kChat, body, IdOf(on->chunks[2]));
    again->request().request_id = "balancers";
    again->request().headers.push_back({"x-request-id", "balancers"});
    second.Run(again);
    EXPECT_EQ(again->Events()[0]["id"],
              header ? "chatcmpl-mine" : "chatcmpl-from-body");
    EXPECT_EQ(again->request().request_id, on->request().request_id);
  }
}

TEST(ResumeTest, WithoutEventIdsEventsAreAsBefore) {
  Gateway gateway;
  serving::ServingContext context{
      gateway.model, gateway.engine.loop(), gateway.metrics, nullptr, {}};
  context.readiness = [] { return serving::Readiness{true, "", {}, 1}; };
  context.rules.event_ids = false;
  context.streams = &gateway.streams;
  http::Router router;
  AddDialects(router, context);
  const auto on = Ask(kChat, kChatBody);
  router.Route(on);
  gateway.engine.Play();
  for (const std::string& chunk : on->chunks) {
    EXPECT_EQ(IdOf(chunk), "") << chunk;
  }
  EXPECT_EQ(gateway.streams.figures().streams, 0u);
  const auto again = Get(on->request().request_id);
  router.Route(again);
  EXPECT_EQ(again->responses[0].status, 404);
  EXPECT_EQ(again->Body()["error"]["code"], "stream_not_found");
}

TEST(ResumeTest, GetGivesTheWholeOrTheRest) {
  Gateway gateway;
  const auto whole = gateway.Run(Ask(kChat, kChatBody));
  const std::string id = whole->request().request_id;
  const auto again = gateway.Run(Get(id));
  ASSERT_EQ(again->responses[0].status, 200) << again->responses[0].body;
  EXPECT_EQ(Join(again->chunks), Join(whole->chunks));
  EXPECT_EQ(again->request().request_id, id);
  for (const size_t cut : {1u, 5u, 20u}) {
    std::vector<std::string> chunks(
        whole->chunks.begin(),
        whole->chunks.begin() + static_cast<std::ptrdiff_t>(cut));
    const auto rest = gateway.Run(Get(id, "", IdOf(chunks.back())));
    chunks.insert(chunks.end(), rest->chunks.begin(), rest->chunks.end());
    EXPECT_EQ(Join(chunks), Join(whole->chunks));
  }
  EXPECT_THAT(gateway.metrics.Text(),
              HasSubstr("sluice_gateway_resumed_streams_total 4\n"));
}

TEST(ResumeTest, GetIsForTheKeyThatAsked) {
  Gateway gateway(/*keys=*/true);
  auto on = Ask(kChat, kChatBody);
  on->request().tenant = "alice";
  gateway.Run(on);
  const std::string id = on->request().request_id;
  EXPECT_EQ(gateway.Run(Get(id, "alice"))->responses[0].status, 200);
  for (const char* tenant : {"bob", ""}) {
    const auto refused = gateway.Run(Get(id, tenant));
    EXPECT_EQ(refused->responses[0].status, 404);
    EXPECT_EQ(refused->Body()["error"]["code"], "stream_not_found");
    EXPECT_THAT(refused->Body()["error"]["message"].get<std::string>(),
                HasSubstr(id));
  }
  const auto other = gateway.Run(
      Get(id, "alice", "b" + IdOf(on->chunks[0]).substr(1, 25) + "other~0.0"));
  EXPECT_EQ(other->responses[0].status, 400);
  EXPECT_THAT(other->Body()["error"]["message"].get<std::string>(),
              HasSubstr("\"other\""));
}

TEST(ResumeTest, AnotherGatewaysRequestsCanBePutIn) {
  Gateway first, second;
  const auto whole = first.Run(Ask(kChat, kChatBody));
  ASSERT_EQ(first.told.size(), 1u);
  EXPECT_EQ(second.Run(Get(whole->request().request_id))->responses[0].status,
            404);
  second.streams.Insert(first.told[0]);
  EXPECT_EQ(second.told.size(), 0u);
  const auto rest =
      second.Run(Get(whole->request().request_id, "", IdOf(whole->chunks[0])));
  std::vector<std::string> chunks{whole->chunks[0]};
  chunks.insert(chunks.end(), rest->chunks.begin(), rest->chunks.end());
  EXPECT_EQ(Join(chunks), Join(whole->chunks));
}

TEST(ResumeTest, OnlyStreamsAreKept) {
  Gateway gateway;
  gateway.Run(Ask("/v1/completions", R"({"prompt": "hi"})"));
  gateway.Run(Ask("/v1/completions", R"({"prompt": 1.5, "stream": true})"));
  EXPECT_EQ(gateway.told.size(), 0u);
  EXPECT_EQ(gateway.streams.figures().streams, 0u);
}

}  // namespace
}  // namespace sluice::gateway
