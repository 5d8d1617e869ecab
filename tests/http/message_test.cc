#include "common/http/message.h"

#include <gtest/gtest.h>

#include "common/base/cat.h"
#include "common/http/router.h"
#include "tests/http/fake_exchange.h"

namespace sluice::http {
namespace {

std::string PathOf(std::string_view target, std::string_view method = "GET") {
  HttpRequest request;
  request.method = method;
  return ParseTarget(target, request) ? request.path + "?" + request.query
                                      : "refused";
}

TEST(HttpMessageTest, TargetsAreTakenApartInEveryForm) {
  EXPECT_EQ(PathOf("/a/b"), "/a/b?");
  EXPECT_EQ(PathOf("/a?x=%41&y"), "/a?x=%41&y");
  EXPECT_EQ(PathOf("/v1/models/org%2Fname%20x"), "/v1/models/org/name x?");
  EXPECT_EQ(PathOf("http://host:80/a?b"), "/a?b");
  EXPECT_EQ(PathOf("HTTPS://host/a"), "/a?");
  EXPECT_EQ(PathOf("http://host"), "/?");
  EXPECT_EQ(PathOf("http://host?q"), "/?q");
  EXPECT_EQ(PathOf("*", "OPTIONS"), "*?");
}

TEST(HttpMessageTest, OtherTargetsAreRefused) {
  for (const char* target :
       {"*", "", "a/b", "ftp://host/a", "http:///a", "host:80", "/%", "/%4",
        "/%zz", "/%00", "/a%0ab", "/%7f", "/%+1", "/%-1"}) {
    EXPECT_EQ(PathOf(target), "refused") << target;
  }
}

TEST(HttpMessageTest, RequestIdsAreBoundedAndHarmless) {
  EXPECT_EQ(SanitizedRequestId("a-B_9.:"), "a-B_9.:");
  const std::string longest(128, 'a');
  EXPECT_EQ(SanitizedRequestId(longest), longest);
  for (const std::string& bad :
       {std::string(), longest + "a", std::string("a b"), std::string("a\r\nb"),
        std::string("\xc3\xa4"), std::string("<x>")}) {
    const std::string id = SanitizedRequestId(bad);
    EXPECT_NE(id, bad);
    EXPECT_EQ(id.size(), 24u);
  }
  EXPECT_NE(SanitizedRequestId(""), SanitizedRequestId(""));
}

TEST(HttpMessageTest, TraceparentsAreTakenOnlyIfValid) {
  const std::string good =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(SanitizedTraceparent(good), good);
  for (const char* bad :
       {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_EQ(SanitizedTraceparent(bad), "") << bad;
  }
}

TEST(HttpMessageTest, TheNearestPatternServesAPath) {
  Router router;
  const auto says = [](const char* what) {
    return [what](std::shared_ptr<Exchange> on) {
      HttpResponse response;
      response.body = what;
      on->Send(std::move(response));
    };
  };
  router.Add("GET", "/a", says("a"));
  router.Add("GET", "/a/*", says("a star"));
  router.Add("GET", "/a/b/*", says("a b star"));
  const auto served = [&](std::string_view path) {
    const auto exchange = Post(path, "");
    exchange->request().method = "GET";
    router.Route(exchange);
    const HttpResponse& response = exchange->responses.at(0);
    return response.status == 200 ? response.body : Cat(response.status);
  };
  EXPECT_EQ(served("/a"), "a");
  EXPECT_EQ(served("/a/x"), "a star");
  EXPECT_EQ(served("/a/x/y/z"), "a star");
  EXPECT_EQ(served("/a/b/c/d"), "a b star");
  EXPECT_EQ(served("/a/b"), "a star");
  EXPECT_EQ(served("/a/b/"), "a star");
  for (const char* unknown : {"/", "/b", "/ab", "//", "x", "/../a", "/./a"}) {
    EXPECT_EQ(served(unknown), "404") << unknown;
  }
  // However many slashes a path has, each of its bytes is looked at a few
  // times: were it once per slash, this would not end.
  const std::string slashes(size_t{8} << 20, '/');
  EXPECT_EQ(served(slashes), "404");
  EXPECT_EQ(served("/a" + slashes), "a");
}

TEST(HttpMessageTest, SpareSlashesLeadToTheSamePath) {
  Router router;
  std::string seen;
  const auto serve = [&seen](std::shared_ptr<Exchange> on) {
    seen = on->request().path;
    on->Send({});
  };
  router.Add("GET", "/", serve);
  router.Add("GET", "/v1/models", serve);
  router.AddVerbatim("GET", "/v1/models/*", serve);
  router.Add("GET", "/v1/streams/*", serve);
  router.Add("POST", "/v1/chat/completions", serve);
  const auto path_of = [&](std::string_view path, std::string_view method) {
    const auto exchange = Post(path, "");
    exchange->request().method = method;
    seen.clear();
    router.Route(exchange);
    return seen.empty() ? Cat(exchange->responses.at(0).status) : seen;
  };
  for (const char* path : {"/v1/models", "/v1/models/", "//v1/models",
                           "/v1//models", "///v1///models///"}) {
    EXPECT_EQ(path_of(path, "GET"), "/v1/models") << path;
    EXPECT_EQ(path_of(path, "HEAD"), "/v1/models") << path;
    EXPECT_EQ(path_of(path, "POST"), "405") << path;
  }
  for (const char* path : {"/v1/chat/completions/", "//v1/chat//completions"}) {
    EXPECT_EQ(path_of(path, "POST"), "/v1/chat/completions") << path;
  }
  EXPECT_EQ(path_of("//", "GET"), "/");
  EXPECT_EQ(path_of("//v1//streams//one/", "GET"), "/v1/streams/one");
  // A model's name may hold slashes.
  EXPECT_EQ(path_of("//v1//models/org/name", "GET"), "/v1/models/org/name");
  EXPECT_EQ(path_of("/v1/models//data/model", "GET"), "/v1/models//data/model");
  EXPECT_EQ(path_of("//v1/models//data//model/", "GET"),
            "/v1/models//data//model/");
  for (const char* path : {"/v1", "/v1/", "/v1/model/", "/v1/../v1/models",
                           "/v1/./models", "/x//v1/models"}) {
    EXPECT_EQ(path_of(path, "GET"), "404") << path;
  }
}

TEST(HttpMessageTest, AHeadAloneIsEnoughToRefuse) {
  Router router;
  router.Add("POST", "/v1/a", [](std::shared_ptr<Exchange>) { FAIL(); });
  HttpRequest request;
  const auto refusal = [&](std::string_view method, std::string_view path) {
    request.method = method;
    request.path = path;
    const auto refused = router.Refusal(request);
    return refused ? refused->status : 0;
  };
  EXPECT_EQ(refusal("POST", "/v1/a"), 0);
  EXPECT_EQ(refusal("GET", "/v1/a"), 405);
  EXPECT_EQ(refusal("POST", "/v1/b"), 404);
  EXPECT_EQ(refusal("OPTIONS", "/v1/b"), 0) << "a browser's preflight";
}

}  // namespace
}  // namespace sluice::http
