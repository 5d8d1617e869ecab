#include "common/http/http_client.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/http/one_answer.h"

namespace sluice::http {
namespace {

using testing::OneAnswer;

TEST(HttpClientTest, UrlsAreHostAndPort) {
  const auto base = BaseUrl::Parse("http://host:81/x");
  ASSERT_TRUE(base.ok());
  EXPECT_EQ(base->host, "host");
  EXPECT_EQ(base->port, "81");
  EXPECT_EQ(BaseUrl::Parse("http://host")->port, "80");
  EXPECT_FALSE(BaseUrl::Parse("host:80").ok());
  EXPECT_FALSE(BaseUrl::Parse("http://").ok());
}

TEST(HttpClientTest, HttpsIsRefusedByName) {
  const Status status = BaseUrl::Parse("https://api.example.com/v1").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("speaks no TLS"), std::string::npos);
  EXPECT_NE(Message(status).find("https://api.example.com/v1"),
            std::string::npos);
  EXPECT_EQ(Message(BaseUrl::Parse("ftp://host").status()).find("TLS"),
            std::string::npos);
}

TEST(HttpClientTest, EventsOfAChunkedAnswerAreGivenOneByOne) {
  const OneAnswer server(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "8\r\ndata: a\n\r\n9\r\n\ndata: b\n\r\n1\r\n\n\r\n0\r\n\r\n");
  std::string events;
  const Status done =
      HttpPostEvents(server.url(), "/", "{}", [&](std::string_view event) {
        events += std::string(event) + ";";
        return OkStatus();
      });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(events, "a;b;");
}

TEST(HttpClientTest, LinesAreGivenOneByOneInAnyPieces) {
  const OneAnswer server(
      testing::HttpAnswer("200 OK", "{\"a\":1}\r\n\n{}\nno end"));
  std::string lines;
  const Status done =
      HttpPostLines(server.url(), "/", "{}", [&](std::string_view line) {
        lines += std::string(line) + ";";
        return OkStatus();
      });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(lines, "{\"a\":1};{};");
}

TEST(HttpClientTest, HeadersOfTheServersAddressAreSent) {
  OneAnswer server(testing::HttpAnswer("200 OK", "{}"));
  BaseUrl base = server.url();
  base.api_key = "k";
  base.headers = {{"anthropic-version", "2023-06-01"}};
  EXPECT_TRUE(GetJson(base, "/").ok());
  EXPECT_NE(server.Request().find("\r\nanthropic-version: 2023-06-01\r\n"),
            std::string::npos);
  EXPECT_NE(server.Request().find("\r\nAuthorization: Bearer k\r\n"),
            std::string::npos);
}

TEST(HttpClientTest, AnErrorHasItsWordsInEveryDialect) {
  EXPECT_EQ(ErrorText(404, R"({"error":"model 'x' not found"})"),
            "404: model 'x' not found");
  EXPECT_EQ(ErrorText(529, R"({"type":"error","error":{"message":"full"}})"),
            "529: full");
  EXPECT_EQ(ErrorText(500, "oops"), "500: oops");
}

TEST(HttpClientTest, ARefusalIsToldInTheServersWords) {
  const OneAnswer server(
      "HTTP/1.1 404 Not Found\r\nContent-Length: 39\r\n\r\n"
      R"({"error":{"message":"no such model x"}})");
  const Status done = HttpPostEvents(
      server.url(), "/", "{}", [](std::string_view) { return OkStatus(); });
  EXPECT_EQ(Message(done), "404: no such model x");
}

TEST(HttpClientTest, AStreamThatBreaksIsAnError) {
  const OneAnswer server(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata");
  const Status done = HttpPostEvents(
      server.url(), "/", "{}", [](std::string_view) { return OkStatus(); });
  EXPECT_EQ(done.code(), StatusCode::kUnavailable);
}

TEST(HttpClientTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(HttpGet({"127.0.0.1", "1"}, "/").status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::http
