// Who may come in, and what every answer carries: API keys, CORS, ids.
#include <gmock/gmock.h>

#include "common/http/api_keys.h"
#include "tests/http/key_file.h"
#include "tests/services/gateway/http_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class GatewayAccessTest : public GatewayHttpTest {
 protected:
  void AskForKeys() {
    auto keys = http::ApiKeys::Open(file_.path());
    ASSERT_TRUE(keys.ok()) << keys.status();
    keys_ = *std::move(keys);
    options_.screen = [this](http::HttpRequest& request) {
      return keys_->Screen(request);
    };
    Restart({});
  }

  void SetOrigins(const std::vector<std::string>& origins) {
    auto policy = http::CorsPolicy::Parse(origins);
    ASSERT_TRUE(policy.ok()) << policy.status();
    options_.cors = *std::move(policy);
    Restart({});
  }

  const http::KeyFile file_{"alice:sk-alice-key\nbob:sk-bob-key\n"};
  std::unique_ptr<http::ApiKeys> keys_;
};

TEST_F(GatewayAccessTest, WithoutAKeyEverythingButProbesIsRefused) {
  AskForKeys();
  for (const char* path : {"/livez", "/readyz", "/health", "/ping"}) {
    EXPECT_THAT(Ask(Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")),
                StartsWith("HTTP/1.1 200 "));
  }
  for (const char* path : {"/v1/models", "/metrics", "/version", "/nowhere",
                           "/v1/models/fake", "/livez/", "//livez"}) {
    const std::string answer =
        Ask(Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer"));
    EXPECT_THAT(answer, HasSubstr("\"code\":\"invalid_api_key\""));
    EXPECT_THAT(answer, HasSubstr("X-Request-Id: "));
  }
  EXPECT_THAT(Ask(PostOf("/tokenize", "{\"prompt\":\"abc\"}")),
              StartsWith("HTTP/1.1 401 "));
}

TEST_F(GatewayAccessTest, ProbesWithoutAKeyAreToldNoAddress) {
  readiness_ = {false, "stage 0 (10.1.2.3:7001): lost: 10.1.2.3 refused"};
  readiness_.parts = {{"stage 0 (10.1.2.3:7001)", false,
                       "lost: 10.1.2.3 refused", "stage 0 (layers 0 to 9)",
                       "lost"}};
  readiness_.open_why = "stage 0 (layers 0 to 9): lost";
  AskForKeys();
  const auto ask = [this](const char* path, const char* key) {
    const std::string answer =
        Ask(Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", key, "\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 ")) << path;
    return answer;
  };
  for (const char* path : {"/readyz", "/health", "/ping"}) {
    for (const char* key : {"", "Authorization: Bearer sk-wrong-key\r\n"}) {
      const std::string answer = ask(path, key);
      EXPECT_THAT(answer, Not(HasSubstr("10.1.2.3"))) << path << key;
      EXPECT_THAT(answer, HasSubstr("{\"name\":\"stage 0 (layers 0 to 9)\","
                                    "\"why\":\"lost\"}"));
      EXPECT_THAT(answer,
                  HasSubstr("\"why\":\"stage 0 (layers 0 to 9): lost\""));
    }
    EXPECT_THAT(ask(path, "Authorization: Bearer sk-bob-key\r\n"),
                HasSubstr("lost: 10.1.2.3 refused"));
  }
}

TEST_F(GatewayAccessTest, AnyOfTheKeysComesIn) {
  AskForKeys();
  for (const char* key : {"sk-alice-key", "sk-bob-key"}) {
    for (const char* header : {"Authorization: Bearer ", "X-API-Key: "}) {
      const std::string answer =
          Ask(Cat("GET /v1/models HTTP/1.1\r\nHost: x"
                  "\r\n",
                  header, key, "\r\n\r\n"));
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
      EXPECT_THAT(answer, HasSubstr("\"root\":\"somewhere/fake\""));
    }
  }
  const std::string answer =
      Ask("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
          "sk-wrong-key\r\n"
          "\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(answer, HasSubstr("error=\"invalid_token\""));
  EXPECT_THAT(answer, Not(HasSubstr("sk-wrong-key")));
}

TEST_F(GatewayAccessTest, TheKeysNameReachesTheEngine) {
  AskForKeys();
  Client client(port());
  const std::string body = "{\"prompt\":\"a\",\"max_tokens\":1}";
  client.Send(
      PostOf("/v1/completions", body, "Authorization: Bearer sk-bob-key\r\n"));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  EXPECT_EQ(engine_.request(0).tenant, "bob");
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
  server_->Stop();
  const std::string metrics = metrics_.Text();
  EXPECT_THAT(metrics, HasSubstr("sluice_gateway_key_requests_total{key=\"bob\""
                                 ",status_class=\"2xx\"} 1"));
  EXPECT_THAT(metrics, Not(HasSubstr("sk-bob-key")));
}

TEST(HttpMetricsTest, KeysAreNamedOnlyIfThatIsAskedFor) {
  http::ExchangeSummary summary;
  summary.route = "/v1/completions";
  summary.status = 200;
  const auto names = [&summary](bool asked) {
    GatewayMetrics metrics({.model_name = "fake", .key_names = asked});
    for (int i = 0; i < 100; ++i) {
      const std::string tenant = Cat("tenant-", i);
      summary.tenant = tenant;
      metrics.OnExchange(summary);
    }
    const std::string text = metrics.Text();
    size_t found = 0;
    for (size_t at = 0; (at = text.find("tenant-", at)) != text.npos; ++at) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(names(false), 0u);
  EXPECT_EQ(names(true), 64u) << "the others are one series";
}

TEST_F(GatewayAccessTest, ALargeBodyWithoutAKeyIsRefusedUnread) {
  AskForKeys();
  const std::string answer = Ask(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
}

TEST_F(GatewayAccessTest, ARefusedRequestLeavesTheConnectionGood) {
  AskForKeys();
  Client client(port());
  client.Send(PostOf("/tokenize", "{\"prompt\":\"abc\"}") +
              PostOf("/tokenize", "{\"prompt\":\"abc\"}",
                     "Authorization: Bearer sk-bob-key\r\n"));
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":4"));
}

constexpr std::string_view kPreflight =
    "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: "
    "https://page.example\r\n"
    "Access-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n";

TEST_F(GatewayAccessTest, PreflightsAreAnsweredWithoutAKey) {
  auto policy = http::CorsPolicy::Parse({"*"});
  ASSERT_TRUE(policy.ok());
  options_.cors = *std::move(policy);
  AskForKeys();
  const std::string answer = Ask(kPreflight);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 204 "));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Methods: GET, HEAD, "
                                "POST, OPTIONS\r\n"));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Headers: "
                                "authorization,x-stainless-os\r\n"));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Max-Age: "));
  EXPECT_THAT(answer, Not(HasSubstr("Credentials")));
}

TEST_F(GatewayAccessTest, PagesCanReadEveryAnswerAndItsIds) {
  SetOrigins({"*"});
  for (const char* request : {"GET /livez HTTP/1.1\r\nHost: x\r\nOrigin: "
                              "https://page.example\r\n\r\n",
                              "GET /nowhere HTTP/1.1\r\nHost: x\r\nOrigin: "
                              "https://page.example\r\n\r\n",
                              "POST /tokenize HTTP/1.1\r\nHost: "
                              "x\r\nContent-Length: 999999999\r\n\r\n",
                              "GET / HTTP/9.9\r\n\r\n"}) {
    const std::string answer = Ask(request);
    EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
    EXPECT_THAT(answer, HasSubstr("Access-Control-Expose-Headers: "
                                  "X-Request-Id, Request-Id, Retry-After"));
  }
}

TEST_F(GatewayAccessTest, OnlyListedOriginsAreAllowed) {
  SetOrigins({"https://page.example", "http://127.0.0.1:3000"});
  const std::string listed = Ask(kPreflight);
  EXPECT_THAT(listed, HasSubstr("Allow-Origin: https://page.example\r\n"));
  EXPECT_THAT(listed, HasSubstr("Vary: Origin\r\n"));
  const std::string other = Ask(
      "GET /livez HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n\r\n");
  EXPECT_THAT(other, Not(HasSubstr("Allow-Origin")));
  EXPECT_THAT(other, EndsWith("ok\n"));
}

TEST_F(GatewayAccessTest, OriginsThatAreNoneAreRefused) {
  for (const char* origin : {"page.example", "https://", "https://a/b", "**"}) {
    const auto policy = http::CorsPolicy::Parse({origin});
    ASSERT_FALSE(policy.ok());
    EXPECT_THAT(Message(policy.status()), HasSubstr(origin));
  }
}

TEST_F(GatewayAccessTest, IdsComeBackAlsoOnErrors) {
  const std::string parent =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const char* begin :
       {"GET /livez HTTP/1.1\r\nHost: x\r\n",
        "GET /nowhere HTTP/1.1\r\nHost: x\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n",
        "POST /livez HTTP/1.1\r\nHost: x\r\n",
        "GET ftp://x/ HTTP/1.1\r\nHost: x\r\n"}) {
    const std::string answer = Ask(Cat(
        begin, "X-Request-ID: mine-1\r\ntraceparent: ", parent, "\r\n\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Request-Id: mine-1\r\n")) << begin;
    EXPECT_THAT(answer, HasSubstr(Cat("Traceparent: ", parent, "\r\n")));
  }
}

TEST_F(GatewayAccessTest, BadIdsAreReplacedAndBadTraceparentsDropped) {
  const std::string answer =
      Ask("GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-ID: a b<script>\r\n"
          "traceparent: 00-xyz\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("X-Request-Id: "));
  EXPECT_THAT(answer, Not(HasSubstr("script")));
  EXPECT_THAT(answer, Not(HasSubstr("Traceparent")));
}

}  // namespace
}  // namespace sluice::gateway
