// Requests that come slowly, whose body is not waited for, or with empty lines
// before them.
#include <gmock/gmock.h>

#include <chrono>
#include <optional>
#include <string>

#include "tests/http/server_fixture.h"

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RequestReaderTest : public HttpServerTest {};

TEST_F(RequestReaderTest, ALateBodyIsToldSo) {
  HttpLimits limits;
  limits.body_time = std::chrono::milliseconds(50);
  Restart(limits);
  for (const char* body : {"{", ""}) {
    Client client(port());
    ASSERT_TRUE(client.Send(
        Cat("POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
            body)));
    const std::string all = client.ReceiveAll();
    EXPECT_THAT(all, StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
    EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(all, HasSubstr("within 0.05 seconds"));
    EXPECT_THAT(all, HasSubstr("\"code\":\"request_timeout\""));
  }
}

TEST_F(RequestReaderTest, ABodyThatCrawlsIsToldSoAndASteadyOneIsRead) {
  HttpLimits limits;
  limits.body_grace = std::chrono::milliseconds(300);
  limits.min_body_rate = 100;
  Restart(limits);
  constexpr char kHead[] =
      "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n";
  const auto send = [&](size_t piece) {
    Client client(port());
    client.Send(kHead);
    const std::string bytes(piece, ' ');
    for (size_t sent = 0; sent < 600; sent += piece) {
      if (client.Readable(std::chrono::milliseconds(20))) break;
      client.Send(bytes);
    }
    return client.ReceiveAnswer();
  };
  const std::string crawling = send(1);
  EXPECT_THAT(crawling, StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(crawling, HasSubstr("less than 100 bytes per second"));
  EXPECT_THAT(send(100), HasSubstr("{\"count\":600"));
  limits.min_body_rate = 0;
  Restart(limits);
  EXPECT_THAT(send(30), HasSubstr("{\"count\":600"));
}

TEST_F(RequestReaderTest, ABodyInChunksIsLateToo) {
  HttpLimits limits;
  limits.body_grace = std::chrono::milliseconds(50);
  Restart(limits);
  Client client(port());
  client.Send(
      "POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\na\r\n");
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 408 "));
}

// A request that its head alone refuses.
TEST_F(RequestReaderTest, ARefusedRequestsBodyIsNotAwaited) {
  options_.screen = [](HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path == "/count") return std::nullopt;
    return TransportError(403, "no");
  };
  Restart({});
  Client client(port());
  const auto head = [](std::string_view more) {
    return Cat("POST /no HTTP/1.1\r\nHost: x\r\n", more, "\r\n\r\n");
  };
  const TimePoint begin = Clock::now();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(head("Content-Length: 100")));
    const std::string answer = client.ReceiveAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 ")) << i;
    EXPECT_THAT(answer, HasSubstr("Connection: keep-alive\r\n"));
    // The rest comes in pieces, the last one with the next request.
    client.Send(std::string(60, 'x'));
    client.Send(std::string(40, 'x') + PostOf("/count", "abc"));
    EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("{\"count\":3"));
  }
  for (const char* more :
       {"Content-Length: 8000000", "Transfer-Encoding: chunked",
        "Content-Length: 5\r\nExpect: 100-continue"}) {
    Client other(port());
    other.Send(head(more));
    const std::string answer = other.ReceiveAll();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 ")) << more;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << more;
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(RequestReaderTest, EmptyLinesBeforeARequestAreOverlooked) {
  const std::string ask = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string empty = "\r\n";
  Client client(port());
  client.Send(empty + ask + empty + empty + ask);
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  client.Send(PostOf("/count", "abc") + empty);
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("{\"count\":3"));
  for (const char* piece : {"\r", "\n", "\r\n", "\r"}) client.Send(piece);
  EXPECT_FALSE(client.Readable(std::chrono::milliseconds(50)));
  client.Send("\n" + ask);
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  std::string many;
  for (int i = 0; i < 17; ++i) many += empty;
  client.Send(many + ask);
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 400 "));
  for (const std::string bad : {"\n", "\r", "\r\r\n", " \r\n", "\r\n\n"}) {
    Client other(port());
    other.Send(bad + ask);
    EXPECT_THAT(other.ReceiveAll(), StartsWith("HTTP/1.1 400 "));
  }
}

}  // namespace
}  // namespace sluice::http
