// A made-up dialect that answers, streams and refuses through the core alone,
// also where the server itself refuses; and its kin, whose streams are lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/openai/handlers.h"
#include "common/http/api_keys.h"
#include "common/http/http_server.h"
#include "common/http/router.h"
#include "common/serving/answer_format.h"
#include "common/serving/dialect.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/prepare.h"
#include "common/serving/resumed_streams.h"
#include "common/serving/stream_journal.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/http/fake_exchange.h"
#include "tests/http/raw_client.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::sample {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// {"said", "tokens"}; as a stream the event "begin", events "piece" and at last
// "end"; in silence "still".
class SayFormat : public serving::AnswerFormat {
 public:
  explicit SayFormat(const serving::AnswerInfo& info)
      : AnswerFormat(info),
        has_begun_(!info.told.choices.empty() &&
                   info.told.choices.front().begun) {}

  std::vector<serving::Event> Begin(const serving::Usage& usage) override {
    if (has_begun_) return {};
    return {
        {IdAfter(0, {}), DumpJson({{"heard", usage.prompt_tokens}}), "begin"}};
  }
  std::vector<serving::Event> Ping() override {
    return {{IdAgain(), "{}", "still"}};
  }
  std::vector<serving::EventValue> ChunkValues(int index,
                                               const serving::Delta& delta,
                                               const serving::Usage&,
                                               serving::JsonPieces&) override {
    if (delta.text.empty()) return {};
    serving::ChoiceProgress shown;
    shown.content = delta.text.size();
    return {{IdAfter(index, shown), {{"text", delta.text}}, "piece"}};
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
  bool ShowsTextAlone(int) const override { return true; }

 private:
  const bool has_begun_;
};

// The same without a beginning, a line each.
class LinesFormat : public SayFormat {
 public:
  using SayFormat::SayFormat;
  const http::EventFraming& framing() const override {
    return http::kJsonLines;
  }
  std::vector<serving::Event> Begin(const serving::Usage&) override {
    return {};
  }
  std::vector<serving::Event> Ping() override { return {}; }
};

constexpr serving::FieldNames kNames = {
    .prompt = "say", .max_tokens = "most", .stream = "live"};

// {"say": TEXT, "most": N, "live": BOOL}.
template <typename Format>
StatusOr<serving::PreparedRequest> PrepareSay(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const Json body, ParseJson(http.body));
  serving::FieldReader in(body);
  serving::GenerationFields fields(kNames);
  const std::string text = in.String("say").value_or("");
  fields.max_tokens = in.Int("most", 1, 1000);
  fields.stream = in.Bool("live").value_or(false);
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, http.path, fields));
  SLUICE_ASSIGN_OR_RETURN(const auto terms, serving::ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(auto prompt, context.model.text->Encode(text, false));
  serving::PreparedRequest prepared;
  serving::PreparedRequest::Choice choice;
  choice.text = serving::MakeTextOptions(fields);
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate,
      serving::MakeGenerateRequest(context, fields, std::move(prompt),
                                   /*default_max_tokens=*/16));
  choice.generate.sampling.seed = start.SeedOf(fields, 0);
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  serving::AddChoices(prepared, std::move(choice), 1, terms);
  serving::AnswerInfo info =
      serving::MakeAnswerInfo(context.model, fields, start, "say-");
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  prepared.format = std::make_unique<Format>(info);
  return prepared;
}

template <typename Format>
void RunSay(const serving::ServingContext& context,
            std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareSay<Format>, std::move(exchange));
}

http::HttpResponse Refusal(const http::ApiError& error,
                           const http::HttpRequest& request) {
  http::HttpResponse response;
  response.status = error.http_status == 503 ? 529 : error.http_status;
  response.body =
      DumpJson({{"sorry", error.message}, {"id", request.request_id}});
  return response;
}
std::string LastWords(const http::ApiError& error, const http::HttpRequest&) {
  return http::SseEvent(DumpJson({{"sorry", error.message}}), "", "error");
}
void AddId(const http::HttpRequest& request, Duration,
           http::HttpHeaders& headers) {
  headers.emplace_back("Say-Id", request.request_id);
}

constexpr serving::Endpoint kEndpoints[] = {
    {"/say", RunSay<SayFormat>}, {"/say/lines", RunSay<LinesFormat>}};
constexpr serving::Dialect kDialects[] = {
    {kEndpoints,
     nullptr,
     [](const http::HttpRequest& request) {
       return request.path.starts_with("/say");
     },
     [](std::string_view) { return true; },
     {Refusal, LastWords, AddId}},
    openai::kDialect};

http::ClientFormat FormatOf(const http::HttpRequest& request) {
  return serving::DialectOf(kDialects, request).format;
}

class SampleDialectTest : public ::testing::Test {
 protected:
  void TearDown() override { engine_.EndAll(); }

  serving::ServingContext Context() {
    return {model_, engine_.loop(), metrics_, nullptr,
            [] { return serving::Readiness{true}; }};
  }
  std::shared_ptr<http::FakeExchange> Say(std::string body,
                                          std::string_view path = "/say") {
    auto exchange = http::Post(path, std::move(body));
    exchange->format = FormatOf(exchange->request());
    serving::ServingContext context = Context();
    context.rules = rules_;
    serving::FindEndpoint(kDialects, path)->run(context, exchange);
    return exchange;
  }
  void FailStream() {
    FinalEvent end;
    end.reason = FinishReason::kError;
    end.status = Unavailable("stage 1 was lost");
    engine_.End(0, std::move(end));
  }

  const serving::ServedModel model_ = gateway::FakeModel();
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"fake"}};
  serving::RequestRules rules_{.event_ids = false};
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
  EXPECT_EQ(on->responses.at(0).content_type,
            "text/event-stream; charset=utf-8");
  engine_.Text(0, "h");
  engine_.Text(0, "i");
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(on->chunks,
              ElementsAre("event: begin\ndata: {\"heard\":5}\n\n",
                          "event: piece\ndata: {\"text\":\"h\"}\n\n",
                          "event: piece\ndata: {\"text\":\"i\"}\n\n",
                          "event: end\ndata: {\"tokens\":2}\n\n"));
  EXPECT_TRUE(on->ended);
}

TEST_F(SampleDialectTest, FillsASilenceBeforeAndAfterTheFirstToken) {
  rules_.stream_times.ping_interval = std::chrono::nanoseconds(1);
  const auto on = Say(R"({"say":"hello","live":true})");
  ASSERT_TRUE(on->RunLater());  // the wait for the header is over
  EXPECT_THAT(on->chunks, ElementsAre("event: begin\ndata: {\"heard\":5}\n\n"));
  ASSERT_TRUE(on->RunLater());
  EXPECT_EQ(on->chunks.back(), "event: still\ndata: {}\n\n");
  engine_.Text(0, "h");
  ASSERT_TRUE(on->RunLater());
  EXPECT_EQ(on->chunks.back(), "event: still\ndata: {}\n\n");
}

TEST_F(SampleDialectTest, StreamsLines) {
  rules_.stream_times.ping_interval = std::chrono::nanoseconds(1);
  const auto on = Say(R"({"say":"hello","live":true})", "/say/lines");
  engine_.Start(0);
  EXPECT_EQ(on->responses.at(0).content_type, "application/x-ndjson");
  engine_.Text(0, "h");
  ASSERT_TRUE(on->RunLater());  // a silence, and nothing to fill it
  engine_.Text(0, "i");
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(on->chunks,
              ElementsAre("{\"text\":\"h\"}\n", "{\"text\":\"i\"}\n",
                          "{\"tokens\":2}\n"));
  // An event that text threads write, and several pieces of it.
  const auto large = Say(R"({"say":"hello","live":true})", "/say/lines");
  engine_.Start(1);
  TokenEvent event;
  event.tokens.resize(100 << 10, {'x', {}, {}});
  engine_.Tokens(1, std::move(event));
  engine_.End(1, FinishReason::kLength);
  std::string all;
  for (const std::string& chunk : large->chunks) all += chunk;
  EXPECT_GT(large->chunks.size(), 2u);
  EXPECT_EQ(all, Cat("{\"text\":\"", std::string(100 << 10, 'x'),
                     "\"}\n{\"tokens\":102400}\n"));
}

TEST_F(SampleDialectTest, GoesOnBehindItsBeginning) {
  rules_.event_ids = true;
  const auto id_of = [](const std::string& chunk) {
    const size_t begin = chunk.find("id: ") + 4;
    return chunk.substr(begin, chunk.find('\n', begin) - begin);
  };
  const auto first = Say(R"({"say":"hello","live":true})");
  engine_.Start(0);
  engine_.Text(0, "hi");
  ASSERT_EQ(first->chunks.size(), 3u);
  for (size_t told = 0; told < 2; ++told) {
    const auto on = http::Post("/say", R"({"say":"hello","live":true})");
    on->request().headers.emplace_back("last-event-id",
                                       id_of(first->chunks[told]));
    serving::FindEndpoint(kDialects, "/say")->run(Context(), on);
    const size_t sequence = 1 + told;
    engine_.Start(sequence);
    engine_.Text(sequence, "hi!");
    engine_.End(sequence, FinishReason::kLength);
    std::vector<std::string> events;
    for (const std::string& chunk : on->chunks) {
      events.push_back(chunk.substr(0, chunk.find('\n')));
    }
    std::vector<std::string> expected = {"event: piece", "event: piece",
                                         "event: piece", "event: end"};
    expected.erase(expected.begin(), expected.begin() + told);
    EXPECT_EQ(events, expected);
  }
}

TEST_F(SampleDialectTest, RefusesBeforeAndWithinAStream) {
  const auto refused = Say(R"({"say":"hello","most":0})");
  EXPECT_EQ(refused->responses.at(0).status, 400);
  EXPECT_EQ(refused->responses.at(0).body,
            R"({"sorry":"most: must be an integer from 1 to 1000, )"
            R"(got the number 0","id":"test"})");
  const auto on = Say(R"({"say":"hello","live":true})");
  engine_.Start(0);
  engine_.Text(0, "h");
  FailStream();
  EXPECT_EQ(on->chunks.back(),
            "event: error\ndata: {\"sorry\":\"stage 1 was lost\"}\n\n");
}

TEST_F(SampleDialectTest, TheCoreRefusesByTheDialectsNames) {
  engine_.set_max_context(8);
  const auto sorry = [this](std::string body) {
    return Say(std::move(body))->Body().at("sorry").get<std::string>();
  };
  EXPECT_EQ(sorry(R"({"say":""})"), "say: must not be empty");
  EXPECT_THAT(sorry(R"({"say":"too long a text"})"),
              AllOf(HasSubstr("say: this model's maximum context length is 8"),
                    Not(HasSubstr("prompt:"))));
  EXPECT_THAT(sorry(R"({"say":"hello","most":9})"),
              HasSubstr("most: this model's maximum context length is 8"));
  const auto on = http::Post("/say", R"({"say":"hello"})");
  on->format = FormatOf(on->request());
  on->request().headers.emplace_back(
      "last-event-id",
      Cat(serving::EventIdHead({.request_id = "one"}, 0), "~"));
  serving::FindEndpoint(kDialects, "/say")->run(Context(), on);
  EXPECT_EQ(on->Body().at("sorry"),
            R"(Last-Event-ID: is for a request with "live": true)");
}

// A wrong key, a body that is too large, and what no route serves: the path
// alone tells the dialect, as `screen` leaves it; of a resumed stream that of
// its request.
TEST_F(SampleDialectTest, TheServersErrorsHaveTheShapeOfThePath) {
  const auto keys =
      http::ApiKeys::FromText("first:sk-0123456789abcdef0123", "here");
  ASSERT_TRUE(keys.ok()) << keys.status();
  http::Router router;
  serving::StreamJournal streams({});
  const auto keep = [&streams](std::string id, std::string path) {
    const std::string first =
        Cat(serving::EventIdHead({.request_id = id}, 0), "~");
    streams.Insert(std::make_shared<const serving::StreamRequest>(
        serving::StreamRequest{.request_id = std::move(id),
                               .tenant = "first",
                               .path = std::move(path),
                               .body = R"({"say":"hello","most":0})",
                               .first_event_id = first}));
  };
  keep("of-say", "/say");
  keep("of-chat", "/v1/chat/completions");
  serving::ServingContext context = Context();
  context.streams = &streams;
  serving::AddDialects(kDialects, router, context);
  serving::AddStreamsHandler(kDialects, router, context);
  http::HttpServerOptions options;
  options.listen = "127.0.0.1:0";
  options.limits.body_bytes = 100;
  options.screen = [&](http::HttpRequest& request) {
    request.path = router.Canonical(std::move(request.path));
    return (*keys)->Screen(request);
  };
  options.handler = [&router](std::shared_ptr<http::Exchange> exchange) {
    router.Route(std::move(exchange));
  };
  options.client_format = FormatOf;
  const auto server = http::HttpServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ask = [&server](std::string_view method, std::string_view path,
                             std::string_view key, size_t body_bytes) {
    http::Client client((*server)->port());
    client.Send(Cat(method, " ", path, " HTTP/1.1\r\nHost: a\r\n",
                    "X-Request-Id: one\r\nX-Api-Key: ", key,
                    "\r\nContent-Length: ", body_bytes, "\r\n\r\n",
                    std::string(body_bytes, ' ')));
    return client.ReceiveAnswer();
  };
  constexpr std::string_view kKey = "sk-0123456789abcdef0123";
  const auto sorry = [](std::string_view message) {
    return EndsWith(
        Cat("\r\n\r\n", R"({"sorry":")", message, R"(","id":"one"})"));
  };
  EXPECT_THAT(ask("POST", "/say", "wrong-key", 2),
              AllOf(HasSubstr("401"), HasSubstr("WWW-Authenticate"),
                    HasSubstr("Say-Id: one"), Not(HasSubstr("OpenAI")),
                    sorry("The API key is not one of this server's")));
  EXPECT_THAT(ask("POST", "/say", kKey, 101),
              AllOf(HasSubstr("413"),
                    sorry("The body has 101 bytes, the limit is 100 bytes")));
  EXPECT_THAT(ask("GET", "/say", kKey, 0),
              AllOf(HasSubstr("405"), HasSubstr("Allow: POST, OPTIONS"),
                    sorry("/say takes POST, OPTIONS")));
  EXPECT_THAT(
      ask("GET", "//say/", kKey, 0),
      AllOf(HasSubstr("Say-Id: one"), sorry("/say takes POST, OPTIONS")));
  EXPECT_THAT(ask("GET", "//v1//streams/of-say/", kKey, 0),
              AllOf(HasSubstr("400"), HasSubstr("Say-Id: of-say"),
                    Not(HasSubstr("OpenAI")),
                    EndsWith(R"({"sorry":"most: must be an integer from 1 )"
                             R"(to 1000, got the number 0","id":"of-say"})")));
  for (const char* const id : {"of-chat", "of-none"}) {
    EXPECT_THAT(
        ask("GET", Cat("/v1/streams/", id), kKey, 0),
        AllOf(HasSubstr("OpenAI-Processing-Ms"),
              HasSubstr(R"({"error":{"message":")"), Not(HasSubstr("sorry"))))
        << id;
  }
  EXPECT_THAT(
      ask("POST", "/said", kKey, 0),
      AllOf(HasSubstr("404"), HasSubstr("OpenAI-Processing-Ms"),
            HasSubstr(R"({"error":{"message":"There is no /said here")")));
}

}  // namespace
}  // namespace sluice::sample
