// Connections as odd clients make them: half-closed, reset, turned away,
// draining; and requests that other servers would read differently.
#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "tests/services/gateway/http_fixture.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::gateway {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class GatewayConnectionTest : public GatewayHttpTest {
 protected:
  std::string Ask(std::string_view request) const {
    Client client(port());
    client.Send(request);
    return client.ReceiveAnswer();
  }
};

TEST_F(GatewayConnectionTest, AHalfClosedClientGetsItsAnswer) {
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("")));
  client.HalfClose();
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "abc");
  engine_.End(0, FinishReason::kStop);
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(all, HasSubstr("\"content\":\"abc\""));
  EXPECT_EQ(server_->stats().disconnects, 0);
}

TEST_F(GatewayConnectionTest, AHalfClosedClientGetsItsWholeStream) {
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("\"stream\":true")));
  client.HalfClose();
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "a");
  client.ReceiveUntil("\n\n");
  engine_.Text(0, "b");
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("[DONE]"));
  EXPECT_EQ(server_->stats().disconnects, 0);
}

TEST_F(GatewayConnectionTest, AHalfClosedClientIsAskedAndStillAnswered) {
  http::HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(10);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("")));
  client.HalfClose();
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  }
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(GatewayConnectionTest, AHalfClosedStreamIsAskedWithComments) {
  http::HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(10);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("\"stream\":true")));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "a");
  client.ReceiveUntil("\n\n");
  client.HalfClose();
  client.ReceiveUntil("\n:\n\n");
  client.ReceiveUntil("\n:\n\n");
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("[DONE]"));
}

TEST_F(GatewayConnectionTest, AnHttp10ClientThatClosesItsHalfIsGone) {
  Client client(port());
  std::string request = ChatOf("");
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  ASSERT_TRUE(client.Send(request));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  client.HalfClose();
  EXPECT_TRUE(engine_.AwaitCancelled(1));
}

TEST_F(GatewayConnectionTest, PipelinedRequestsBeforeAHalfCloseAreAnswered) {
  Client client(port());
  std::string requests;
  for (int i = 0; i < 5; ++i) {
    requests += PostOf("/tokenize", "{\"prompt\":\"abc\"}");
  }
  ASSERT_TRUE(client.Send(requests + "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
  client.HalfClose();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":4"));
  }
  EXPECT_THAT(client.ReceiveAll(), EndsWith("ok\n"));
}

TEST_F(GatewayConnectionTest, ARequestCutOffByAHalfCloseIsDropped) {
  for (const char* cut :
       {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
        "\r\n{",
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nConte", "P"}) {
    Client client(port());
    ASSERT_TRUE(client.Send(PostOf("/tokenize", "{\"prompt\":\"abc\"}") + cut));
    client.HalfClose();
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":4"));
    EXPECT_EQ(client.ReceiveAll(), "");
  }
  EXPECT_EQ(server_->stats().exchanges, 0);
}

TEST_F(GatewayConnectionTest, AResetCancelsAtOnce) {
  http::HttpLimits limits;
  limits.half_closed_time = std::chrono::hours(1);
  Restart(limits);
  for (const char* fields : {"", "\"stream\":true"}) {
    const size_t before = engine_.submitted();
    Client client(port());
    ASSERT_TRUE(client.Send(ChatOf(fields)));
    ASSERT_TRUE(engine_.AwaitSubmitted(before + 1));
    client.Reset();
    EXPECT_TRUE(engine_.AwaitCancelled(before + 1));
  }
}

TEST_F(GatewayConnectionTest, AResetAfterAHalfCloseCancelsAtOnce) {
  http::HttpLimits limits;
  limits.half_closed_time = std::chrono::hours(1);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("")));
  client.HalfClose();
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  client.Reset();
  EXPECT_TRUE(engine_.AwaitCancelled(1));
}

TEST_F(GatewayConnectionTest, AResetBehindManyPipelinedBytesIsNoticed) {
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("")));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  ASSERT_TRUE(client.Send(std::string(200000, 'x')));
  client.Reset();
  EXPECT_TRUE(engine_.AwaitCancelled(1));
}

TEST_F(GatewayConnectionTest, CodingsThatAreNotReadAreRefused) {
  for (const char* header :
       {"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, chunked"}) {
    const std::string answer = Ask(Cat("POST /tokenize HTTP/1.1\r\nHost: x\r\n",
                                       header, "\r\n\r\n0\r\n\r\n"));
    EXPECT_THAT(answer,
                AnyOf(StartsWith("HTTP/1.1 501 "), StartsWith("HTTP/1.1 400 ")))
        << header;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
  EXPECT_THAT(Ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                  "gzip, chunked"
                  "\r\n\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 501 "));
  EXPECT_THAT(
      Ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
          "Content-Length: 2\r\n\r\n{}"),
      StartsWith("HTTP/1.1 415 "));
}

TEST_F(GatewayConnectionTest, TwoHostsAreRefused) {
  EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(GatewayConnectionTest, AnHttp11RequestNeedsAHost) {
  const std::string answer = Ask("GET /livez HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("needs a Host header"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(Ask("GET /livez HTTP/1.0\r\n\r\n"), EndsWith("ok\n"));
}

TEST_F(GatewayConnectionTest, AnHttp10RequestHasNoCoding) {
  Client client(port());
  client.Send(
      "POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"
      "Connection: keep-alive\r\n\r\n0\r\n\r\n"
      "GET /livez HTTP/1.0\r\n\r\n");
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(all, Not(HasSubstr("ok\n"))) << "what follows is not a request";
}

TEST_F(GatewayConnectionTest, TargetsInEveryFormAreServed) {
  for (const char* line :
       {"GET http://some.host:80/livez HTTP/1.1", "GET /livez?x=1 HTTP/1.1",
        "GET /%6civez HTTP/1.1"}) {
    EXPECT_THAT(Ask(Cat(line, "\r\nHost: x\r\n\r\n")), EndsWith("ok\n"))
        << line;
  }
  Client client(port());
  client.Send(
      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: "
      "x\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"),
              HasSubstr("Allow: GET, HEAD, POST, OPTIONS\r\n"));
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  for (const char* line : {"GET livez HTTP/1.1", "GET * HTTP/1.1",
                           "GET /%zz HTTP/1.1", "GET /a%00b HTTP/1.1"}) {
    EXPECT_THAT(Ask(Cat(line, "\r\nHost: x\r\n\r\n")),
                StartsWith("HTTP/1.1 400 "))
        << line;
  }
}

TEST_F(GatewayConnectionTest, ModelsAreFoundHoweverTheirSlashIsWritten) {
  for (const char* name : {"fake", "%66ake"}) {
    EXPECT_THAT(
        Ask(Cat("GET /v1/models/", name, " HTTP/1.1\r\nHost: x\r\n\r\n")),
        StartsWith("HTTP/1.1 200 "));
  }
  for (const char* name : {"org/fake", "org%2Ffake"}) {
    const std::string answer =
        Ask(Cat("GET /v1/models/", name, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(answer, HasSubstr("org/fake"));
    EXPECT_THAT(answer, HasSubstr("model_not_found"));
  }
}

TEST_F(GatewayConnectionTest, ALargeBodyIsToldItsSizeAndTheLimit) {
  const std::string answer = Ask(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer, HasSubstr("has 9000000 bytes"));
  EXPECT_THAT(answer, HasSubstr("limit is 8388608 bytes"));
}

TEST_F(GatewayConnectionTest, AnExpectationOfHttp10IsNotAnswered) {
  Client client(port());
  client.Send(
      "POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\n"
      "Content-Length: 16\r\n\r\n{\"prompt\":\"abc\"}");
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(GatewayConnectionTest, WhileDrainingProbesAreAnsweredAndClosed) {
  Client busy(port());
  busy.Send(ChatOf("\"stream\":true"));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  server_->BeginDrain();
  for (int i = 0; i < 3; ++i) {
    Client probe(port());
    probe.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string all = probe.ReceiveAll();
    EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(all, EndsWith("ok\n"));
  }
  engine_.Text(0, "a");
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(busy.ReceiveAll(), HasSubstr("[DONE]"));
}

TEST_F(GatewayConnectionTest, AConnectionFromBeforeDrainingMaySendARequest) {
  Client fresh(port());
  Client used(port());
  used.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(used.ReceiveAnswer(), EndsWith("ok\n"));
  server_->BeginDrain();
  EXPECT_EQ(used.ReceiveAll(), "");
  fresh.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(fresh.ReceiveAll(), EndsWith("ok\n"));
}

TEST_F(GatewayConnectionTest, RequestsThatCameWhileDrainingAreNotWaitedFor) {
  server_->BeginDrain();
  Client late(port());
  late.Send(ChatOf(""));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  EXPECT_TRUE(server_->WaitIdle(Clock::now()));
}

TEST_F(GatewayConnectionTest, AllUnreadAnswersTogetherAreBounded) {
  http::HttpLimits limits;
  limits.all_backlog_bytes = 100 << 10;
  Restart(limits);
  ExpectASlowReaderIsCutOff();
}

TEST_F(GatewayConnectionTest, HundredsTooManyAreTurnedAwayInWords) {
  http::HttpLimits limits;
  limits.connections = 1;
  Restart(limits);
  Client first(port());
  first.Send(ChatOf(""));  // who waits for an answer makes no room
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  std::set<std::string> ids;
  for (int i = 0; i < 200; ++i) {
    Client other(port());
    other.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string answer = other.ReceiveAnswer();
    ASSERT_THAT(answer, StartsWith("HTTP/1.1 503 ")) << i;
    const size_t id = answer.find("X-Request-Id: ");
    ASSERT_NE(id, std::string::npos);
    ids.insert(answer.substr(id, answer.find('\r', id) - id));
  }
  EXPECT_EQ(ids.size(), 200u);
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(first.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(GatewayConnectionTest, WhoIsTurnedAwayMaySendItsWholeRequest) {
  http::HttpLimits limits;
  limits.connections = 1;
  Restart(limits);
  Client first(port());
  first.Send(ChatOf(""));  // who waits for an answer makes no room
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  // More than the sockets' buffers hold, so that the server must read it. It
  // does so for a second only: on a machine that stalls there is another try.
  const std::string request =
      PostOf("/tokenize", std::string(size_t{16} << 20, 'x'));
  std::string answer;
  for (int i = 0; i < 20 && !answer.starts_with("HTTP/1.1 503 "); ++i) {
    Client other(port());
    if (!other.Send(request)) continue;
    other.HalfClose();
    answer = other.ReceiveAll();
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
}

TEST_F(GatewayConnectionTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  Client before(port());
  before.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(before.ReceiveAnswer(), EndsWith("ok\n"));
  Client waiting;
  {
    const sluice::testing::NoDescriptors none;
    waiting.Connect(port());
    waiting.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    const double used = sluice::testing::ProcessorSeconds();
    EXPECT_FALSE(waiting.Readable(std::chrono::milliseconds(500)));
    EXPECT_LT(sluice::testing::ProcessorSeconds() - used, 0.2);
    // Who is in is served.
    before.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(before.ReceiveAnswer(), EndsWith("ok\n"));
  }
  EXPECT_THAT(waiting.ReceiveAnswer(), EndsWith("ok\n"));
}

TEST_F(GatewayConnectionTest, RequestsAreCountedByErrorToo) {
  Ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  Ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  Ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
  server_->Stop();
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("sluice_gateway_requests_total{endpoint=\"/livez"
                              "\",error_type=\"\",status_class=\"2xx\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("sluice_gateway_requests_total{endpoint=\"other\","
                        "error_type=\"invalid_request_error\","
                        "status_class=\"4xx\"} 2"));
  EXPECT_THAT(text, HasSubstr("http_response_size_bytes_sum{handler=\"/livez"
                              "\"} 3"));
  EXPECT_THAT(text, Not(HasSubstr("nowhere")));
}

}  // namespace
}  // namespace sluice::gateway
