// Connections as odd clients make them: half-closed, reset, turned away,
// draining; and requests that other servers would read differently.
#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "tests/http/server_fixture.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::http {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ConnectionTest : public HttpServerTest {};

TEST_F(ConnectionTest, AHalfClosedClientGetsItsAnswer) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("")));
  client.HalfClose();
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "abc");
  held_.End(0);
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(all, HasSubstr("\"content\":\"abc\""));
  EXPECT_EQ(server_->stats().disconnects, 0);
}

TEST_F(ConnectionTest, AHalfClosedClientGetsItsWholeStream) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  client.HalfClose();
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  client.ReceiveUntil("\n\n");
  held_.Text(0, "b");
  held_.End(0);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("[DONE]"));
  EXPECT_EQ(server_->stats().disconnects, 0);
}

TEST_F(ConnectionTest, AHalfClosedClientIsAskedAndStillAnswered) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(10);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("")));
  client.HalfClose();
  ASSERT_TRUE(held_.AwaitHeld(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  }
  held_.End(0);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(ConnectionTest, AHalfClosedStreamIsAskedWithComments) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(10);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  client.ReceiveUntil("\n\n");
  client.HalfClose();
  client.ReceiveUntil("\n:\n\n");
  client.ReceiveUntil("\n:\n\n");
  held_.End(0);
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("[DONE]"));
}

TEST_F(ConnectionTest, AnHttp10ClientThatClosesItsHalfIsGone) {
  Client client(port());
  std::string request = HeldOf("");
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  ASSERT_TRUE(client.Send(request));
  ASSERT_TRUE(held_.AwaitHeld(1));
  client.HalfClose();
  EXPECT_TRUE(held_.AwaitGone(1));
}

TEST_F(ConnectionTest, PipelinedRequestsBeforeAHalfCloseAreAnswered) {
  Client client(port());
  std::string requests;
  for (int i = 0; i < 5; ++i) {
    requests += PostOf("/count", "{\"prompt\":\"abc\"}");
  }
  ASSERT_TRUE(client.Send(requests + "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
  client.HalfClose();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":16"));
  }
  EXPECT_THAT(client.ReceiveAll(), EndsWith("ok\n"));
}

TEST_F(ConnectionTest, ARequestCutOffByAHalfCloseIsDropped) {
  for (const char* cut :
       {"POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
        "\r\n{",
        "POST /count HTTP/1.1\r\nHost: x\r\nConte", "P"}) {
    Client client(port());
    ASSERT_TRUE(client.Send(PostOf("/count", "{\"prompt\":\"abc\"}") + cut));
    client.HalfClose();
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":16"));
    EXPECT_EQ(client.ReceiveAll(), "");
  }
  EXPECT_EQ(server_->stats().exchanges, 0);
}

TEST_F(ConnectionTest, AResetCancelsAtOnce) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::hours(1);
  Restart(limits);
  for (const char* fields : {"", "\"stream\":true"}) {
    const size_t before = held_.count();
    Client client(port());
    ASSERT_TRUE(client.Send(HeldOf(fields)));
    ASSERT_TRUE(held_.AwaitHeld(before + 1));
    client.Reset();
    EXPECT_TRUE(held_.AwaitGone(before + 1));
  }
}

TEST_F(ConnectionTest, AResetAfterAHalfCloseCancelsAtOnce) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::hours(1);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("")));
  client.HalfClose();
  ASSERT_TRUE(held_.AwaitHeld(1));
  client.Reset();
  EXPECT_TRUE(held_.AwaitGone(1));
}

TEST_F(ConnectionTest, AResetBehindManyPipelinedBytesIsNoticed) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  ASSERT_TRUE(client.Send(std::string(200000, 'x')));
  client.Reset();
  EXPECT_TRUE(held_.AwaitGone(1));
}

TEST_F(ConnectionTest, CodingsThatAreNotReadAreRefused) {
  for (const char* header :
       {"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, chunked"}) {
    const std::string answer = Ask(Cat("POST /count HTTP/1.1\r\nHost: x\r\n",
                                       header, "\r\n\r\n0\r\n\r\n"));
    EXPECT_THAT(answer,
                AnyOf(StartsWith("HTTP/1.1 501 "), StartsWith("HTTP/1.1 400 ")))
        << header;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
  EXPECT_THAT(Ask("POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                  "gzip, chunked"
                  "\r\n\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 501 "));
  EXPECT_THAT(
      Ask("POST /count HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
          "Content-Length: 2\r\n\r\n{}"),
      StartsWith("HTTP/1.1 415 "));
}

TEST_F(ConnectionTest, TwoHostsAreRefused) {
  EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(ConnectionTest, AnHttp11RequestNeedsAHost) {
  const std::string answer = Ask("GET /livez HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("needs a Host header"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(Ask("GET /livez HTTP/1.0\r\n\r\n"), EndsWith("ok\n"));
}

TEST_F(ConnectionTest, AnHttp10RequestHasNoCoding) {
  Client client(port());
  client.Send(
      "POST /count HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"
      "Connection: keep-alive\r\n\r\n0\r\n\r\n"
      "GET /livez HTTP/1.0\r\n\r\n");
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(all, Not(HasSubstr("ok\n"))) << "what follows is not a request";
}

TEST_F(ConnectionTest, TargetsInEveryFormAreServed) {
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

TEST_F(ConnectionTest, ALargeBodyIsToldItsSizeAndTheLimit) {
  const std::string answer =
      Ask("POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer, HasSubstr("has 9000000 bytes"));
  EXPECT_THAT(answer, HasSubstr("limit is 8388608 bytes"));
}

TEST_F(ConnectionTest, AnExpectationOfHttp10IsNotAnswered) {
  Client client(port());
  client.Send(
      "POST /count HTTP/1.0\r\nExpect: 100-continue\r\n"
      "Content-Length: 16\r\n\r\n{\"prompt\":\"abc\"}");
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ConnectionTest, WhileDrainingProbesAreAnsweredAndClosed) {
  Client busy(port());
  busy.Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  server_->BeginDrain();
  for (int i = 0; i < 3; ++i) {
    Client probe(port());
    probe.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string all = probe.ReceiveAll();
    EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(all, EndsWith("ok\n"));
  }
  held_.Text(0, "a");
  held_.End(0);
  EXPECT_THAT(busy.ReceiveAll(), HasSubstr("[DONE]"));
}

TEST_F(ConnectionTest, AConnectionFromBeforeDrainingMaySendARequest) {
  Client fresh(port());
  Client used(port());
  used.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(used.ReceiveAnswer(), EndsWith("ok\n"));
  server_->BeginDrain();
  EXPECT_EQ(used.ReceiveAll(), "");
  fresh.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(fresh.ReceiveAll(), EndsWith("ok\n"));
}

TEST_F(ConnectionTest, RequestsThatCameWhileDrainingAreNotWaitedFor) {
  server_->BeginDrain();
  Client late(port());
  late.Send(HeldOf(""));
  ASSERT_TRUE(held_.AwaitHeld(1));
  EXPECT_TRUE(server_->WaitIdle(Clock::now()));
}

TEST_F(ConnectionTest, AllUnreadAnswersTogetherAreBounded) {
  HttpLimits limits;
  limits.all_backlog_bytes = 100 << 10;
  Restart(limits);
  // More than the sockets' buffers hold, of which the client reads nothing.
  Client client(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  const std::string text(20000, 'x');
  for (int i = 0; i < 20000 && server_->stats().slow_readers == 0; ++i) {
    held_.Text(0, text);
  }
  EXPECT_TRUE(held_.AwaitGone(1));
  EXPECT_EQ(server_->stats().slow_readers, 1);
  EXPECT_EQ(server_->stats().disconnects, 1);
}

TEST_F(ConnectionTest, HundredsTooManyAreTurnedAwayInWords) {
  HttpLimits limits;
  limits.connections = 1;
  Restart(limits);
  Client first(port());
  first.Send(HeldOf(""));  // who waits for an answer makes no room
  ASSERT_TRUE(held_.AwaitHeld(1));
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
  held_.End(0);
  EXPECT_THAT(first.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ConnectionTest, WhoIsTurnedAwayMaySendItsWholeRequest) {
  HttpLimits limits;
  limits.connections = 1;
  Restart(limits);
  Client first(port());
  first.Send(HeldOf(""));  // who waits for an answer makes no room
  ASSERT_TRUE(held_.AwaitHeld(1));
  // More than the sockets' buffers hold, so that the server must read it. It
  // does so for a second only: on a machine that stalls there is another try.
  const std::string request =
      PostOf("/count", std::string(size_t{16} << 20, 'x'));
  std::string answer;
  for (int i = 0; i < 20 && !answer.starts_with("HTTP/1.1 503 "); ++i) {
    Client other(port());
    if (!other.Send(request)) continue;
    other.HalfClose();
    answer = other.ReceiveAll();
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
}

TEST_F(ConnectionTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
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

}  // namespace
}  // namespace sluice::http
