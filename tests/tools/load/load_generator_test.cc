#include "common/tools/load/load_generator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/tools/load/load_summary.h"

namespace sluice::load {
namespace {

// The bytes of an answer whose events are `events`.
std::string Stream(const std::vector<std::string>& events) {
  std::string out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& event : events) {
    const std::string data = "data: " + event + "\n\n";
    char size[16];
    std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
    out += size + data + "\r\n";
  }
  return out + "0\r\n\r\n";
}

std::string GoodAnswer() {
  const std::string token = R"({"choices":[{"text":"a","token_ids":[5]}]})";
  return Stream(
      {token, token, R"({"choices":[{"text":"ab","token_ids":[5,6]}]})",
       R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}})",
       "[DONE]"});
}

// Answers each request of each connection with `answer(number)`; an empty one
// closes the connection.
class Server {
 public:
  explicit Server(std::function<std::string(int)> answer)
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener_, 64);
    socklen_t length = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  http::BaseUrl url() const {
    return {"127.0.0.1", std::to_string(port_), "key"};
  }
  int connections() const { return connections_; }
  int most_at_once() const { return most_; }
  std::string last_head() {
    std::lock_guard<std::mutex> lock(mutex_);
    return head_;
  }

 private:
  void Accept() {
    for (;;) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      ++connections_;
      threads_.emplace_back([this, peer] {
        while (ReadRequest(peer)) {
          const int now = ++at_once_;
          for (int most = most_;
               now > most && !most_.compare_exchange_weak(most, now);) {
          }
          const std::string bytes = answer_(requests_++);
          --at_once_;
          if (bytes.empty() || write(peer, bytes.data(), bytes.size()) !=
                                   static_cast<ssize_t>(bytes.size())) {
            break;
          }
        }
        close(peer);
      });
    }
  }

  // A header and a body of its Content-Length.
  bool ReadRequest(int peer) {
    std::string text;
    size_t need = std::string::npos;
    while (text.size() < need) {
      char bytes[4096];
      const ssize_t got = read(peer, bytes, sizeof(bytes));
      if (got <= 0) return false;
      text.append(bytes, static_cast<size_t>(got));
      const size_t head = text.find("\r\n\r\n");
      const size_t field = text.find("Content-Length: ");
      if (head == std::string::npos || field == std::string::npos) continue;
      need = head + 4 + std::stoul(text.substr(field + 16));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    head_ = text.substr(0, text.find("\r\n\r\n"));
    return true;
  }

  const std::function<std::string(int)> answer_;
  const int listener_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
  std::atomic<int> requests_{0}, connections_{0}, at_once_{0}, most_{0};
  std::mutex mutex_;
  std::string head_;
};

LoadOptions Closed(const Server& server, int concurrency, int64_t requests) {
  LoadOptions options;
  options.base = server.url();
  options.concurrency = concurrency;
  options.num_requests = requests;
  options.timeout = std::chrono::seconds(20);
  return options;
}

StatusOr<LoadResult> Generate(const LoadOptions& options) {
  return GenerateLoad(
      options,
      [](int64_t) {
        return LoadRequest{"{}", 3, 4};
      },
      [](const LoadProgress&) {});
}

TEST(LoadGeneratorTest, AClosedLoopSendsEveryRequestOverItsOwnConnections) {
  Server server([](int) { return GoodAnswer(); });
  const auto result = Generate(Closed(server, 4, 100));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->records.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    const RequestRecord& record = result->records[i];
    EXPECT_EQ(record.index, static_cast<int64_t>(i));
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.error;
    EXPECT_EQ(record.output_tokens, 4);
    EXPECT_EQ(record.prompt_tokens, 3);
    EXPECT_EQ(record.source, TokenSource::kUsage);
    EXPECT_EQ(record.arrivals.size(), 3u);
    EXPECT_GE(record.sent, record.scheduled);
    EXPECT_GE(record.arrivals.front().at, record.sent);
    EXPECT_GE(record.ended, record.arrivals.back().at);
  }
  EXPECT_LE(server.connections(), 4);
  EXPECT_LE(server.most_at_once(), 4);
  EXPECT_NE(server.last_head().find("Authorization: Bearer key"),
            std::string::npos);
  EXPECT_NE(server.last_head().find("POST /v1/completions HTTP/1.1"),
            std::string::npos);
}

TEST(LoadGeneratorTest, EveryWayToFailIsToldByItsKind) {
  Server server([](int number) -> std::string {
    switch (number) {
      case 0:
        return "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\n"
               "Content-Length: 28\r\n\r\n{\"error\":{\"message\":\"full\"}}";
      case 1:
        return "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n";
      case 2:
        return Stream({R"({"choices":[{"text":"a"}]})",
                       R"({"error":{"message":"lost"}})"});
      case 3:
        return Stream({R"({"choices":[{"text":"a"}]})"});
      case 4:
        return Stream({"[DONE]"});
      case 5:
        return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
               "Content-Length: 2\r\n\r\n{}";
      case 6:
        return "not HTTP at all\r\n\r\n";
      default:
        return GoodAnswer();
    }
  });
  const auto result = Generate(Closed(server, 1, 8));
  ASSERT_TRUE(result.ok()) << result.status();
  const LoadSummary summary = Summarize(*result, Duration(0), std::nullopt);
  std::map<std::string, int64_t> counts;
  for (const auto& [kind, failure] : summary.failures) {
    counts[kind] = failure.count;
  }
  EXPECT_EQ(counts, (std::map<std::string, int64_t>{{"refused 429", 1},
                                                    {"http_error 500", 1},
                                                    {"error_event", 1},
                                                    {"broken", 3},
                                                    {"empty", 1}}));
  EXPECT_EQ(summary.done, 1);
  EXPECT_EQ(summary.retry_after_s.count, 1u);
  EXPECT_EQ(summary.failures.at("refused 429").example, "429: full");
  EXPECT_EQ(summary.failures.at("error_event").example, "lost");
}

TEST(LoadGeneratorTest, AConnectionThatTheServerClosedIsOpenedAnew) {
  Server server([](int number) {
    return number % 2 == 0 ? GoodAnswer() : std::string();
  });
  // Each second request meets a connection that is closed: it is sent again.
  const auto result = Generate(Closed(server, 1, 4));
  ASSERT_TRUE(result.ok()) << result.status();
  for (const RequestRecord& record : result->records) {
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.error;
  }
}

TEST(LoadGeneratorTest, AnOpenLoopSendsByItsArrivalsAndTellsHowLateItWas) {
  Server server([](int) { return GoodAnswer(); });
  LoadOptions options = Closed(server, 0, 50);
  options.rate = 2000;
  options.seed = 3;
  const auto result = Generate(options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->records.size(), 50u);
  TimePoint before = result->began;
  for (const RequestRecord& record : result->records) {
    EXPECT_GE(record.scheduled, before);
    EXPECT_GE(record.Lateness(), 0);
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.error;
    before = record.scheduled;
  }
}

TEST(LoadGeneratorTest, ADurationEndsARunEvenBeforeItsFirstArrival) {
  Server server([](int) { return GoodAnswer(); });
  LoadOptions options = Closed(server, 0, 0);
  options.rate = 0.001;
  options.duration = std::chrono::milliseconds(1);
  const auto none = Generate(options);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->records.empty());
  options.concurrency = 2;
  options.duration = std::chrono::milliseconds(50);
  const auto some = Generate(options);
  ASSERT_TRUE(some.ok());
  EXPECT_FALSE(some->records.empty());
}

TEST(LoadGeneratorTest, NobodyListeningIsAConnectFailure) {
  LoadOptions options;
  options.base = {"127.0.0.1", "1", ""};
  options.num_requests = 1;
  const auto result = Generate(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->records.at(0).outcome, Outcome::kConnect);
}

}  // namespace
}  // namespace sluice::load
