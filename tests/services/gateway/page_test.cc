// The page's files and the JSON that its picture is drawn from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/endpoints.h"
#include "services/gateway/page/page_files.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string HeaderOf(const http::HttpResponse& response,
                     std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

http::HttpResponse Get(const http::Router& router, std::string_view path,
                       http::HttpHeaders headers = {}) {
  http::HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.headers = std::move(headers);
  const auto exchange =
      std::make_shared<http::FakeExchange>(std::move(request));
  router.Route(exchange);
  return exchange->responses.empty() ? http::HttpResponse{}
                                     : exchange->responses.front();
}

class PageTest : public ::testing::Test {
 protected:
  PageTest() { AddPageHandlers(router_); }
  http::Router router_;
};

TEST_F(PageTest, TheRootIsTheEmbeddedHtml) {
  const http::HttpResponse page = Get(router_, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("<title>Sluice</title>"));
  EXPECT_EQ(page.body.substr(0, 15), "<!DOCTYPE html>");
  EXPECT_EQ(page.body.back(), '\n');
}

TEST_F(PageTest, EveryFileThatTheHtmlNamesIsServed) {
  const std::string html = Get(router_, "/").body;
  int named = 0;
  for (size_t at = html.find("\"page/"); at != html.npos;
       at = html.find("\"page/", at + 1)) {
    const std::string path =
        "/" + html.substr(at + 1, html.find('"', at + 1) - at - 1);
    EXPECT_EQ(Get(router_, path).status, 200) << path;
    ++named;
  }
  EXPECT_GE(named, 5);
}

TEST_F(PageTest, EveryModuleThatAScriptImportsIsServed) {
  int named = 0;
  for (const PageFile& file : PageFiles()) {
    const std::string text(file.bytes);
    for (size_t at = text.find(" './"); at != text.npos;
         at = text.find(" './", at + 1)) {
      const std::string path =
          "/page/" + text.substr(at + 4, text.find('\'', at + 4) - at - 4);
      EXPECT_EQ(Get(router_, path).content_type,
                "text/javascript; charset=utf-8")
          << file.path << " imports " << path;
      ++named;
    }
  }
  EXPECT_GE(named, 10);
}

TEST_F(PageTest, EveryFileSaysWhatItIsAndWhatItMayDo) {
  for (const PageFile& file : PageFiles()) {
    const http::HttpResponse response = Get(router_, file.path);
    EXPECT_EQ(response.body, file.bytes);
    EXPECT_FALSE(response.body.empty()) << file.path;
    EXPECT_EQ(HeaderOf(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(HeaderOf(response, "Referrer-Policy"), "no-referrer");
    EXPECT_EQ(HeaderOf(response, "Cache-Control"), "no-cache");
    const std::string policy = HeaderOf(response, "Content-Security-Policy");
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
    EXPECT_THAT(policy, HasSubstr("require-trusted-types-for 'script'"));
    EXPECT_TRUE(policy.ends_with("; trusted-types dompurify")) << policy;
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(policy, Not(HasSubstr("http")));
  }
}

TEST_F(PageTest, AKnownFileIsNotSentAgain) {
  for (const PageFile& file : PageFiles()) {
    const std::string tag = HeaderOf(Get(router_, file.path), "ETag");
    EXPECT_EQ(tag, file.etag);
    for (const std::string& known : {tag, "W/" + tag, "\"x\", " + tag}) {
      const http::HttpResponse again =
          Get(router_, file.path, {{"if-none-match", known}});
      EXPECT_EQ(again.status, 304) << known;
      EXPECT_TRUE(again.body.empty());
      EXPECT_EQ(HeaderOf(again, "ETag"), tag);
    }
    EXPECT_EQ(Get(router_, file.path, {{"if-none-match", "\"other\""}}).status,
              200);
  }
}

TEST_F(PageTest, FilesThatAreNotThereAreNotFound) {
  EXPECT_EQ(Get(router_, "/page/nothing.js").status, 404);
  EXPECT_EQ(Get(router_, "/page/../index.html").status, 404);
  EXPECT_EQ(Get(router_, "/index.html").status, 404);
}

TEST_F(PageTest, NothingInThePageNamesAnotherOrigin) {
  for (const PageFile& file : PageFiles()) {
    std::string text(file.bytes);
    // The names of XML's languages are no addresses to load from.
    const std::string svg = "http://www.w3.org/2000/svg";
    for (size_t at = text.find(svg); at != text.npos; at = text.find(svg)) {
      text.erase(at, svg.size());
    }
    EXPECT_THAT(text, Not(HasSubstr("src=\"http"))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("href=\"http"))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("eval("))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("new Function"))) << file.path;
    // Libraries have functions that the page does not call.
    if (file.path.starts_with("/page/third_party/")) continue;
    EXPECT_THAT(text, Not(HasSubstr("url("))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << file.path;
  }
}

TEST_F(PageTest, TheDocumentsViewerIsServedToo) {
  const http::HttpResponse page = Get(router_, "/docs");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("<title>Sluice API</title>"));
  for (const char* file : {"docs.js", "docs.css", "base.css", "theme.js"}) {
    EXPECT_THAT(page.body, HasSubstr(Cat("\"page/", file, "\"")));
    EXPECT_EQ(Get(router_, Cat("/page/", file)).status, 200) << file;
  }
  EXPECT_EQ(Get(router_, "/API.md").status, 404);
}

// "GET /a/{b}" of the document is "GET /a/*" of a router.
std::set<std::string> DocumentRoutes(const Json& document) {
  std::set<std::string> routes;
  for (const auto& [path, operations] : document["paths"].items()) {
    const std::string pattern = path.substr(0, path.find('{'));
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_TRUE(operation.contains("summary")) << path;
      routes.insert(Cat(absl::AsciiStrToUpper(method), " ", pattern,
                        pattern == path ? "" : "*"));
    }
  }
  return routes;
}

TEST(ApiDocumentRoutesTest, AreThoseThatAreServed) {
  const serving::ServedModel model = FakeModel();
  ScriptedEngine engine;
  GatewayMetrics metrics{{"fake"}};
  serving::ServingContext context{model, engine.loop(), metrics, nullptr, {}};
  http::Router unbuilt;
  AddUnbuiltHandlers(unbuilt);
  const std::vector<std::string> refused = unbuilt.Routes();
  for (const bool debug : {false, true}) {
    http::Router router;
    AddEndpoints(router, context, debug, [] { return ClusterReading(); });
    std::set<std::string> served;
    for (std::string route : router.Routes()) {
      if (std::find(refused.begin(), refused.end(), route) != refused.end())
        continue;
      if (route.starts_with("GET /page/")) route = "GET /page/*";
      served.insert(std::move(route));
    }
    const auto document = ParseJson(Get(router, "/openapi.json").body);
    ASSERT_TRUE(document.ok());
    EXPECT_EQ(DocumentRoutes(*document), served) << "debug: " << debug;
  }
}

ClusterReading TwoStages() {
  ClusterReading reading;
  reading.readiness.why = "stage 1: lost";
  reading.pipeline.epoch = Epoch(7);
  reading.pipeline.model.emplace().limits.plan.max_context = 8192;
  reading.max_context = 4096;
  reading.engine.running = 3;
  reading.engine.blocks_total = 8;
  reading.engine.blocks_used = 2;
  reading.engine.generation_tokens = 99;
  reading.engine.last_step_time = std::chrono::milliseconds(12);
  StageStatus first;
  first.address = "127.0.0.1:7001";
  first.last_layer = 15;
  first.ranks = 2;
  first.threads = 4;
  first.state = StageState::kReady;
  first.rtt = std::chrono::microseconds(250);
  first.load = {11, 1, std::chrono::seconds(2), std::chrono::milliseconds(3)};
  StageStatus second;
  second.address = "127.0.0.1:7002";
  second.first_layer = 15;
  second.last_layer = 30;
  second.state = StageState::kLost;
  second.message = "connection refused";
  reading.pipeline.stages = {first, second};
  return reading;
}

TEST(ClusterJsonTest, TellsTheEngineAndEveryStage) {
  const serving::ServedModel model = FakeModel();
  const auto json = ParseJson(ClusterJson(model, TwoStages()));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["ready"], false);
  EXPECT_EQ((*json)["why"], "stage 1: lost");
  EXPECT_EQ((*json)["epoch"], 7);
  EXPECT_EQ((*json)["model"]["name"], "fake");
  EXPECT_EQ((*json)["model"]["max_context"], 4096) << "as requests are held to";
  EXPECT_EQ((*json)["engine"]["running"], 3);
  EXPECT_EQ((*json)["engine"]["kv_usage"], 0.25);
  EXPECT_EQ((*json)["engine"]["generation_tokens"], 99);
  EXPECT_EQ((*json)["engine"]["last_step_ms"], 12.0);
  ASSERT_EQ((*json)["stages"].size(), 2u);
  const Json& first = (*json)["stages"][0];
  EXPECT_EQ(first["state"], "ready");
  EXPECT_EQ(first["last_layer"], 15);
  EXPECT_EQ(first["ranks"], 2);
  EXPECT_EQ(first["rtt_ms"], 0.25);
  EXPECT_EQ(first["hop_ms"], 3.0);
  EXPECT_EQ(first["busy_ms"], 2000.0);
  const Json& second = (*json)["stages"][1];
  EXPECT_EQ(second["index"], 1);
  EXPECT_EQ(second["state"], "lost");
  EXPECT_EQ(second["message"], "connection refused");
  EXPECT_EQ(second["first_layer"], 15) << "known although it is lost";
  EXPECT_TRUE(second["hop_ms"].is_null());
}

TEST(ClusterJsonTest, StrangersAreToldNoPath) {
  ClusterReading reading = TwoStages();
  reading.pipeline.stages[1].address = "unix:/srv/jo/.cache/run/stage-1.sock";
  reading.pipeline.stages[1].message = "unix:/srv/jo/.cache/run: refused";
  reading.readiness.why = "stage 1 (unix:/srv/jo/.cache/run/stage-1.sock)";
  reading.readiness.open_why = "stage 1 (layers 15 to 29)";
  const serving::ServedModel model = FakeModel();
  EXPECT_THAT(ClusterJson(model, reading),
              HasSubstr("unix:/srv/jo/.cache/run/stage-1.sock"));
  const std::string open = ClusterJson(model, reading, Audience::kAnybody);
  EXPECT_THAT(open, Not(HasSubstr("/srv/jo")));
  EXPECT_THAT(open, HasSubstr("\"address\":\"unix:stage-1.sock\""));
  EXPECT_THAT(open, HasSubstr("\"address\":\"127.0.0.1:7001\""));
  EXPECT_THAT(open, HasSubstr("stage 1 (layers 15 to 29)"));
}

TEST(ClusterJsonTest, IsReadAnewForEveryRequest) {
  const serving::ServedModel model = FakeModel();
  http::Router router;
  int reads = 0;
  AddClusterHandler(router, model, /*keys_asked=*/false, [&reads] {
    ClusterReading reading;
    reading.engine.running = ++reads;
    return reading;
  });
  for (int want = 1; want <= 2; ++want) {
    const http::HttpResponse response = Get(router, "/cluster");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(HeaderOf(response, "Cache-Control"), "no-store");
    EXPECT_THAT(response.body,
                HasSubstr("\"running\":" + std::to_string(want) + ","));
  }
}

}  // namespace
}  // namespace sluice::gateway
