#include "common/standby/forwarded_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/http/sse.h"
#include "common/standby/handover_exchange.h"
#include "common/standby/passed_events.h"
#include "tests/http/fake_exchange.h"

namespace sluice::standby {
namespace {

using http::FakeExchange;
using http::HttpHeaders;
using http::HttpRequest;
using http::HttpResponse;
using http::SseHead;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

HttpRequest Request() {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.peer = "10.0.0.7";
  request.request_id = "one";
  request.body = "{}";
  return request;
}

TEST(ForwardedMessageTest, ARequestGoesOnWithoutWhatIsOfItsConnection) {
  HttpRequest request = Request();
  request.query = "a=%20&b";
  request.headers = {{"host", "api.example:8000"},
                     {"authorization", "Bearer k"},
                     {"connection", "keep-alive, X-Mine ,TE"},
                     {"x-mine", "of this connection"},
                     {"te", "trailers"},
                     {"transfer-encoding", "chunked"},
                     {"expect", "100-continue"},
                     {"content-length", "999"},
                     {"x-request-id", "two"},
                     {"last-event-id", "one-7"}};
  EXPECT_EQ(ForwardedHead(request),
            "POST /v1/chat/completions?a=%20&b HTTP/1.1\r\n"
            "host: api.example:8000\r\n"
            "authorization: Bearer k\r\n"
            "last-event-id: one-7\r\n"
            "x-forwarded-for: 10.0.0.7\r\n"
            "x-request-id: one\r\n"
            "x-sluice-forwarded: 1\r\n"
            "content-length: 2\r\n"
            "connection: close\r\n\r\n");
}

// Else the answer would depend on the server that is asked.
TEST(ForwardedMessageTest, HeadersThatAServerReadsGoOnWhateverConnectionSays) {
  HttpRequest request = Request();
  request.headers = {{"host", "api.example"},
                     {"authorization", "Bearer k"},
                     {"x-api-key", "k"},
                     {"content-type", "application/json"},
                     {"connection", "Host, authorization,X-API-Key, x-mine"},
                     {"connection", "content-type"},
                     {"x-mine", "a"},
                     {"forwarded", "for=9.9.9.9"},
                     {"x-forwarded-for", "8.8.8.8"}};
  const std::string head = ForwardedHead(request);
  for (const char* line : {"host: api.example", "authorization: Bearer k",
                           "x-api-key: k", "content-type: application/json",
                           "x-forwarded-for: 8.8.8.8, 10.0.0.7"}) {
    EXPECT_THAT(head, HasSubstr(Cat("\r\n", line, "\r\n")));
  }
  EXPECT_THAT(head, Not(HasSubstr("x-mine: a")));
  EXPECT_THAT(head, Not(HasSubstr("9.9.9.9"))) << "the peer's is written";
}

TEST(ForwardedMessageTest, AnAnswersRestIsAskedForByItsLastEvent) {
  HttpRequest request = Request();
  request.headers = {{"last-event-id", "one-7"}};
  const std::string head = ForwardedHead(request, "one-9");
  EXPECT_THAT(head, HasSubstr("\r\nlast-event-id: one-9\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("one-7")));
}

TEST(PassedEventsTest, TheLastWholeEventsIdIsKept) {
  PassedEvents passed;
  EXPECT_TRUE(passed.is_whole());
  const auto add = [&](std::string_view bytes) {
    passed.Add(bytes);
    return Cat(passed.is_whole() ? "whole " : "part ", passed.last_id(),
               passed.is_last_id_latest() ? "" : " and more");
  };
  EXPECT_EQ(add(": ping\n\n"), "whole  and more");
  EXPECT_EQ(add("id: a-1\nda"), "part  and more");
  EXPECT_EQ(add("ta: id: x\n"), "part  and more");
  EXPECT_EQ(add("\n"), "whole a-1");
  EXPECT_EQ(add("id: a-2\ndata: y\n\nid: a-3\n"), "part a-2");
  EXPECT_EQ(add("data: z"), "part a-2");
  EXPECT_EQ(add("\n\n: ping\n\n"), "whole a-3");
  EXPECT_EQ(add("data: [DONE]\n\n"), "whole a-3");
  EXPECT_EQ(add("data: no id\n\n"), "whole a-3 and more");
  EXPECT_EQ(add("\r"), "part a-3 and more");
}

// A stream whose handler ends with the error that another server leads.
TEST(HandoverExchangeTest, AStreamIsHandedOverBehindAnEventWithAnId) {
  for (const bool has_id : {false, true}) {
    const auto client = std::make_shared<FakeExchange>(Request());
    std::string behind = "nothing";
    HandoverExchange exchange(
        client, [&](const auto&, const std::optional<PassedEvents>& passed) {
          behind = passed->last_id();
        });
    exchange.ReleaseBody();
    EXPECT_EQ(client->request().body, "{}") << "the next server needs it";
    exchange.BeginStream(SseHead());
    const std::string event = Cat(has_id ? "id: a-1\n" : "", "data: {}\n\n");
    exchange.SendChunk(event);
    exchange.figures().error_code = "superseded";
    exchange.SendChunk("data: {\"error\":{}}\n\n");
    exchange.SendChunk("data: [DONE]\n\n");
    exchange.EndStream();
    EXPECT_EQ(behind, has_id ? "a-1" : "nothing");
    EXPECT_EQ(client->chunks.size(), has_id ? 1u : 3u);
    EXPECT_EQ(client->ended, !has_id);
  }
}

TEST(HandoverExchangeTest, OtherAnswersPassAsTheyAre) {
  const auto client = std::make_shared<FakeExchange>(Request());
  HandoverExchange exchange(client, [](const auto&, const auto&) { FAIL(); });
  exchange.request().body.assign((256 << 10) + 1, 'x');
  exchange.ReleaseBody();
  EXPECT_TRUE(client->request().body.empty()) << "too large to be kept";
  exchange.Send(
      http::ErrorResponse({.http_status = 503, .code = "superseded"}));
  ASSERT_EQ(client->responses.size(), 1u);
  EXPECT_EQ(client->responses[0].status, 503);
}

TEST(ForwardedMessageTest, ThePathIsEscapedAgain) {
  HttpRequest request = Request();
  for (const auto& [path, target] :
       {std::pair{"/v1/models/a b?c", "/v1/models/a%20b%3Fc"},
        {"/\xC3\xA4%", "/%C3%A4%25"},
        {"/a/b:c@d;e=f", "/a/b:c@d;e=f"}}) {
    request.path = path;
    EXPECT_THAT(ForwardedHead(request),
                StartsWith(Cat("POST ", target, " HTTP/1.1\r\n")));
  }
  // A head alone is asked for: the exchange drops the body.
  request.method = "HEAD";
  EXPECT_THAT(ForwardedHead(request), StartsWith("GET /"));
}

TEST(ForwardedMessageTest, TheClientsAddressIsTheLastOfXForwardedFor) {
  HttpRequest request = Request();
  request.headers = {{"x-forwarded-for", "1.1.1.1"},
                     {"x-forwarded-for", "2.2.2.2"},
                     {"x-sluice-forwarded", "of the client"}};
  const std::string head = ForwardedHead(request);
  EXPECT_THAT(head,
              HasSubstr("x-forwarded-for: 1.1.1.1, 2.2.2.2, 10.0.0.7\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("of the client")));
  EXPECT_THAT(head, HasSubstr("\r\nhost: localhost\r\n")) << "there was none";
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

TEST(ForwardedMessageTest, AnAnswerComesBackWithoutWhatEachServerWrites) {
  const HttpHeaders kept = ForwardedAnswerHeaders({
      {"content-type", "application/json"},
      {"content-length", "5"},
      {"transfer-encoding", "chunked"},
      {"connection", "close, x-hop"},
      {"x-hop", "1"},
      {"x-request-id", "one"},
      {"traceparent", "00-1"},
      {"access-control-allow-origin", "*"},
      {"vary", "Origin"},
      {"retry-after", "1"},
      {"cache-control", "no-store"},
  });
  EXPECT_THAT(kept, ElementsAre(Pair("retry-after", "1"),
                                Pair("cache-control", "no-store")));
}

}  // namespace
}  // namespace sluice::standby
