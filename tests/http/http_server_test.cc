#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/http/server_fixture.h"

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string answer = client.ReceiveAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: keep-alive\r\n"));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nok\n"));
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Client client(port());
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    requests += PostOf(
        "/count", Cat("{\"prompt\":\"", std::string(size_t(i), 'x'), "\"}"));
  }
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr(Cat("\"count\":", i + 13)));
  }
}

TEST_F(HttpServerTest, ARequestBehindAStreamWaitsForItsEnd) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true") +
                          "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "ab");
  held_.End(0);
  EXPECT_THAT(client.ReceiveUntil("0\r\n\r\n"), HasSubstr("[DONE]"));
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
}

TEST_F(HttpServerTest, EachEventIsOneChunkOfItsOwn) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true,\"max_tokens\":3")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  const std::string head = client.ReceiveUntil("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head,
              HasSubstr("Content-Type: text/event-stream; charset=utf-8\r\n"));
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
  held_.Text(0, "b");
  held_.End(0);
  for (const char* end : {"data: {", "data: {", "data: [DONE]"}) {
    const size_t size = std::stoul(client.ReceiveUntil("\r\n"), nullptr, 16);
    const std::string chunk = client.ReceiveUntil("\n\n\r\n");
    EXPECT_EQ(chunk.size(), size + 2);
    EXPECT_THAT(chunk, StartsWith(end));
  }
  EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "0\r\n\r\n");
}

TEST_F(HttpServerTest, AStreamThatStartedSendsItsHeaderAndThenComments) {
  stream_times_.ping_interval = std::chrono::milliseconds(20);
  Restart({});
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Start(0);
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"), HasSubstr(" 200 OK\r\n"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.ReceiveUntil("\n\n\r\n"), "8\r\n: ping\n\n\r\n");
  }
  held_.Text(0, "a");
  EXPECT_THAT(client.ReceiveUntil("}\n\n"), HasSubstr("\"a\""));
  held_.End(0);
  EXPECT_THAT(client.ReceiveUntil("0\r\n\r\n"), HasSubstr("[DONE]"));
  // What was to come later does not come into the next answer.
  ASSERT_TRUE(client.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  EXPECT_FALSE(client.Readable(std::chrono::milliseconds(100)));
}

TEST_F(HttpServerTest, AStreamThatWaitsSendsItsHeaderInTime) {
  stream_times_ = {std::chrono::milliseconds(20), Duration::zero()};
  Restart({});
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"), HasSubstr(" 200 OK\r\n"));
}

TEST_F(HttpServerTest, AServerStopsWhileStreamsWaitForTheirComments) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  const TimePoint begin = Clock::now();
  server_.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(HttpServerTest, TheRequestIdComesBack) {
  Client client(port());
  client.Send("GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-ID: abc-1\r\n\r\n");
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("X-Request-Id: abc-1\r\n"));
}

TEST_F(HttpServerTest, AnswersTellHowLongTheyTookInTheServer) {
  Client client(port());
  for (const char* request : {"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
                              "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    client.Send(request);
    const std::string answer = client.ReceiveAnswer();
    const size_t at = answer.find("OpenAI-Processing-Ms: ");
    ASSERT_NE(at, answer.npos) << answer;
    EXPECT_LT(std::stoi(answer.substr(at + 22)), 10000);
  }
}

TEST_F(HttpServerTest, ItsOwnHeadersTakeThePlaceOfAnotherServers) {
  more_routes_ = [](Router& router) {
    router.Add("GET", "/passed", [](std::shared_ptr<Exchange> on) {
      on->Send({200,
                "text/plain",
                {{"openai-processing-ms", "70000"}, {"x-other", "1"}},
                "ok\n"});
    });
  };
  Restart({});
  const std::string answer = Ask("GET /passed HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("OpenAI-Processing-Ms: "));
  EXPECT_THAT(answer, HasSubstr("x-other: 1\r\n"));
  EXPECT_EQ(answer.find("openai-processing-ms"), answer.npos) << answer;
}

TEST_F(HttpServerTest, AClientThatLeavesAStreamCancelsIt) {
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  client.ReceiveUntil("\n\n");
  client.Close();
  held_.Text(0, "b");  // the write that its side refuses
  EXPECT_TRUE(held_.AwaitGone(1));
}

TEST_F(HttpServerTest, AClientThatLeavesWhileWaitingCancelsToo) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(20);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send(HeldOf("")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  client.Close();
  EXPECT_TRUE(held_.AwaitGone(1));
}

TEST_F(HttpServerTest, ASlowReaderIsCutOffInTheEnd) {
  HttpLimits limits;
  limits.write_time = std::chrono::milliseconds(300);
  Restart(limits);
  Client client(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true,\"logprobs\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, std::string(size_t{8} << 20, 'x'));
  EXPECT_TRUE(held_.AwaitGone(1));
  EXPECT_EQ(server_->stats().slow_readers, 1);
  EXPECT_EQ(server_->stats().disconnects, 1);
}

TEST_F(HttpServerTest, AHundredMegabytesAreRefusedUnread) {
  Client client(port());
  ASSERT_TRUE(
      client.Send("POST /count HTTP/1.1\r\nHost: x\r\n"
                  "Content-Length: 104857600\r\n\r\n"));
  const std::string block(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) {
    if (!client.Send(block)) break;
  }
  const std::string answer = client.ReceiveAnswer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer, HasSubstr("8388608 bytes"));
  EXPECT_THAT(answer, HasSubstr("\"error\""));
}

TEST_F(HttpServerTest, AllBodiesTogetherAreBounded) {
  HttpLimits limits;
  limits.all_body_bytes = 1 << 20;
  Restart(limits);
  const std::string head =
      "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n"
      "Expect: 100-continue\r\n\r\n";
  // What is only announced takes nothing.
  Client silent(port());
  ASSERT_TRUE(silent.Send(head));
  EXPECT_THAT(silent.ReceiveUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  Client first(port());
  ASSERT_TRUE(first.Send(head));
  EXPECT_THAT(first.ReceiveUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  ASSERT_TRUE(first.Send(std::string(800000, ' ')));
  while (server_->stats().body_bytes < 800000) std::this_thread::yield();
  Client second(port());
  ASSERT_TRUE(second.Send(head));
  const std::string refusal = second.ReceiveAnswer();
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refusal, HasSubstr("Retry-After"));
  Client small(port());
  ASSERT_TRUE(small.Send(PostOf("/count", "{\"prompt\":\"abc\"}")));
  EXPECT_THAT(small.ReceiveAnswer(), HasSubstr("\"count\":16"));
}

TEST_F(HttpServerTest, ChunkedBodiesCountAsFarAsTheyCame) {
  HttpLimits limits;
  limits.all_body_bytes = 1 << 20;
  Restart(limits);
  const std::string head =
      "POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n";
  const std::string piece = "64000\r\n" + std::string(0x64000, 'x') + "\r\n";
  Client idle(port());
  ASSERT_TRUE(idle.Send(head));
  Client first(port());
  ASSERT_TRUE(first.Send(head + piece + piece));
  while (server_->stats().body_bytes < 2 * 0x64000) std::this_thread::yield();
  Client second(port());
  ASSERT_TRUE(second.Send(head + piece));
  EXPECT_THAT(second.ReceiveAnswer(), StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, ABodyCountsUntilItIsRead) {
  Client client(port());
  ASSERT_TRUE(
      client.Send(HeldOf("\"user\":\"" + std::string(9000, 'x') + "\"")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  EXPECT_EQ(server_->stats().body_bytes, 0);
  held_.End(0);
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, AnEndlessChunkedBodyIsRefused) {
  Client client(port());
  ASSERT_TRUE(
      client.Send("POST /count HTTP/1.1\r\nHost: x\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n"));
  const std::string block = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  for (int i = 0; i < 12; ++i) {
    if (!client.Send(block)) break;
  }
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, ChunkedBodiesAreRead) {
  Client client(port());
  ASSERT_TRUE(client.Send(
      "POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
      "\r\n5\r\n{\"pro\r\nb\r\nmpt\":\"abc\"}\r\n0\r\n\r\n"));
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":16"));
}

TEST_F(HttpServerTest, ContinueIsSaidBeforeTheBody) {
  Client client(port());
  const std::string body = "{\"prompt\":\"abc\"}";
  ASSERT_TRUE(client.Send(
      Cat("POST /count HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
          "Content-Length: ",
          body.size(), "\r\n\r\n")));
  EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send(body));
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("\"count\":16"));
}

TEST_F(HttpServerTest, ContinueIsNotSaidToABodyThatIsTooLarge) {
  Client client(port());
  ASSERT_TRUE(
      client.Send("POST /count HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                  "Content-Length: 99999999\r\n\r\n"));
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, MalformedHttpIsRefusedAndClosed) {
  for (const char* bytes :
       {"NOT HTTP AT ALL\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        "Transfer-Encoding: chunked\r\n\r\n{}"}) {
    SCOPED_TRACE(bytes);
    Client client(port());
    ASSERT_TRUE(client.Send(bytes));
    const std::string answer = client.ReceiveAll();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
  }
}

TEST_F(HttpServerTest, ALongHeaderIsRefused) {
  Client client(port());
  client.Send(Cat("GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ",
                  std::string(20000, 'a'), "\r\n\r\n"));
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, ASlowHeaderIsGivenUp) {
  HttpLimits limits;
  limits.header_time = std::chrono::milliseconds(50);
  Restart(limits);
  Client client(port());
  ASSERT_TRUE(client.Send("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: "));
  EXPECT_EQ(client.ReceiveAll(), "")
      << "closed, long before ReceiveAll gives up";
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  Client client(port());
  client.Send(
      "HEAD /large HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: "
      "x\r\n"
      "Connection: close\r\n\r\n");
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, Not(HasSubstr("xx")));
  EXPECT_THAT(all, EndsWith("ok\n"));
}

TEST_F(HttpServerTest, Http10GetsNoChunksAndAnEnd) {
  Client client(port());
  const std::string body = "{\"stream\":true}";
  client.Send(Cat("POST /held HTTP/1.0\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  held_.End(0);
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, Not(HasSubstr("chunked")));
  EXPECT_THAT(all, EndsWith("data: [DONE]\n\n"));
}

TEST_F(HttpServerTest, TooManyConnectionsAreToldSo) {
  HttpLimits limits;
  limits.connections = 2;
  Restart(limits);
  Client first(port());
  Client second(port());
  first.Send(HeldOf(""));  // who waits for an answer makes no room
  second.Send(HeldOf(""));
  ASSERT_TRUE(held_.AwaitHeld(2));
  Client third(port());
  const std::string answer = third.ReceiveAnswer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("too many connections"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: "));
}

TEST_F(HttpServerTest, DrainingFinishesStreamsAndClosesIdleConnections) {
  Client idle(port());
  idle.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.ReceiveAnswer();
  Client busy(port());
  busy.Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "a");
  busy.ReceiveUntil("\n\n");
  server_->BeginDrain();
  EXPECT_EQ(idle.ReceiveAll(), "") << "closed";
  EXPECT_FALSE(server_->WaitIdle(Clock::now()));
  held_.Text(0, "b");
  held_.End(0);
  EXPECT_THAT(busy.ReceiveAll(), HasSubstr("[DONE]"));
  EXPECT_TRUE(server_->WaitIdle(Clock::now() + std::chrono::seconds(10)));
}

TEST_F(HttpServerTest, StoppingEndsWhatIsLeft) {
  Client client(port());
  client.Send(HeldOf(""));
  ASSERT_TRUE(held_.AwaitHeld(1));
  server_->Stop();
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_TRUE(held_.AwaitGone(1));
  EXPECT_EQ(server_->stats().exchanges, 0);
}

TEST_F(HttpServerTest, ManyClientsAtOnceAllGetTheirOwnAnswer) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Client client(port());
      for (int i = 0; i < 50; ++i) {
        const int size = t * 50 + i;
        client.Send(PostOf(
            "/count",
            Cat("{\"prompt\":\"", std::string(size_t(size), 'x'), "\"}")));
        const std::string expected = Cat("\"count\":", size + 13, ",");
        if (client.ReceiveAnswer().find(expected) != std::string::npos) {
          ++right;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

}  // namespace
}  // namespace sluice::http
