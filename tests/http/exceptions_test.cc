// An exception is one request's trouble: whatever a handler, a posted function,
// a callback or the reading of a request throws, others are served on.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "common/base/exception_counts.h"
#include "tests/http/server_fixture.h"

namespace {

// Allocations of more bytes than this fail.
std::atomic<size_t> g_largest_allocation{SIZE_MAX};

}  // namespace

void* operator new(size_t size) {
  if (size <= g_largest_allocation) {
    if (void* memory = std::malloc(size)) return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Thrown {
  const char* what;
  std::function<void()> raise;
  int status;
};

const Thrown kThrown[] = {
    {"memory", [] { throw std::bad_alloc(); }, 503},
    {"length", [] { std::string().resize(SIZE_MAX); }, 503},
    {"error", [] { throw std::runtime_error("secret words"); }, 500},
    {"odd", [] { throw 5; }, 500},
};

uint64_t CaughtAt(std::string_view where) {
  for (const auto& [name, count] : ExceptionCounts()) {
    if (name == where) return count;
  }
  return 0;
}

class ExceptionsTest : public HttpServerTest {
 protected:
  using Use = std::function<void(std::shared_ptr<Exchange>, const Thrown&)>;

  // Serves GET /memory, /length, .. by `use`.
  void Serve(Use use) {
    more_routes_ = [use](Router& router) {
      for (const Thrown& thrown : kThrown) {
        router.Add("GET", Cat("/", thrown.what),
                   [use, &thrown](std::shared_ptr<Exchange> on) {
                     use(std::move(on), thrown);
                   });
      }
    };
    Restart({});
  }
  static std::string RequestOf(std::string_view path) {
    return Cat("GET /", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  void ExpectServed() const {
    Client client(port());
    client.Send(RequestOf("livez"));
    EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
    EXPECT_TRUE(Await(
        [](const HttpServerStats& stats) { return stats.exchanges == 0; }));
  }
  // Each of kThrown becomes an error answer that tells nothing, and the
  // connection stays.
  void ExpectErrorAnswers(std::string_view where) const {
    Client client(port());
    for (const Thrown& thrown : kThrown) {
      const uint64_t before = CaughtAt(where);
      client.Send(RequestOf(thrown.what));
      const std::string answer = client.ReceiveAnswer();
      EXPECT_THAT(answer, StartsWith(Cat("HTTP/1.1 ", thrown.status, " ")))
          << thrown.what;
      EXPECT_THAT(answer, HasSubstr("\"error\""));
      EXPECT_THAT(answer, Not(HasSubstr("secret")));
      EXPECT_EQ(CaughtAt(where), before + 1);
      client.Send(RequestOf("livez"));
      EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
    }
    ExpectServed();
  }
};

TEST_F(ExceptionsTest, OfAHandlerBecomesAnAnswer) {
  Serve(
      [](std::shared_ptr<Exchange>, const Thrown& thrown) { thrown.raise(); });
  ExpectErrorAnswers("http_handler");
}

TEST_F(ExceptionsTest, OfAPostedFunctionBecomesAnAnswer) {
  Serve([](std::shared_ptr<Exchange> on, const Thrown& thrown) {
    on->Post([on, &thrown] { thrown.raise(); });
  });
  ExpectErrorAnswers("http_post");
}

TEST_F(ExceptionsTest, TellsWhatWorksForTheRequest) {
  std::atomic<int> told{0};
  Serve([&told](std::shared_ptr<Exchange> on, const Thrown& thrown) {
    on->OnGone([&told](Gone why) { told += why == Gone::kFailed ? 1 : 100; });
    on->Post([on, &thrown] { thrown.raise(); });
  });
  ExpectErrorAnswers("http_post");
  EXPECT_EQ(told, 4);
}

TEST_F(ExceptionsTest, WithinAStreamEndsTheConnection) {
  std::atomic<int> told{0};
  Serve([&told](std::shared_ptr<Exchange> on, const Thrown& thrown) {
    on->BeginStream({200, "text/plain", {}, ""});
    on->SendChunk("begun");
    on->OnGone([&told](Gone why) { told += why == Gone::kFailed ? 1 : 100; });
    on->Post([on, &thrown] { thrown.raise(); });
  });
  for (const Thrown& thrown : kThrown) {
    Client client(port());
    client.Send(RequestOf(thrown.what));
    const std::string all = client.ReceiveAll();
    EXPECT_THAT(all, Not(HasSubstr("\r\n0\r\n"))) << "no whole answer";
  }
  ExpectServed();
  EXPECT_EQ(told, 4);
}

TEST_F(ExceptionsTest, OfWhatIsToldOfAClientsEndIsDropped) {
  std::atomic<int> asked{0};
  Serve([&asked](std::shared_ptr<Exchange> on, const Thrown& thrown) {
    on->OnGone([on, &thrown](Gone) { thrown.raise(); });
    ++asked;
  });
  const uint64_t before = CaughtAt("http_gone");
  for (const Thrown& thrown : kThrown) {
    const int seen = asked;
    Client client(port());
    client.Send(RequestOf(thrown.what));
    while (asked == seen) std::this_thread::yield();
    client.Reset();
  }
  EXPECT_TRUE(Await([&](const HttpServerStats&) {
    return CaughtAt("http_gone") == before + 4;
  }));
  ExpectServed();
}

TEST_F(ExceptionsTest, OfTheScreenBecomesAnAnswer) {
  options_.screen = [](HttpRequest& request) -> std::optional<HttpResponse> {
    for (const Thrown& thrown : kThrown) {
      if (request.path == Cat("/", thrown.what)) thrown.raise();
    }
    return std::nullopt;
  };
  Restart({});
  for (const Thrown& thrown : kThrown) {
    Client client(port());
    client.Send(RequestOf(thrown.what));
    const std::string all = client.ReceiveAll();
    EXPECT_THAT(all, StartsWith(Cat("HTTP/1.1 ", thrown.status, " ")));
    EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
  }
  ExpectServed();
}

TEST_F(ExceptionsTest, OfAnObserverIsDropped) {
  class Observer : public WriteObserver {
   public:
    void OnWritten(const TraceSpan&, const TraceSpan&) override { throw 5; }
    void OnClosed(const AnswerEnd&) override { throw 5; }
  };
  Serve([](std::shared_ptr<Exchange> on, const Thrown&) {
    on->Observe(std::make_shared<Observer>());
    on->Send({200, "text/plain", {}, "fine\n"});
  });
  for (int i = 0; i < 3; ++i) {
    Client client(port());
    client.Send(RequestOf("odd"));
    EXPECT_THAT(client.ReceiveAnswer(), EndsWith("fine\n"));
  }
  ExpectServed();
}

TEST_F(ExceptionsTest, OfABodyThatFindsNoMemoryBecomesAnAnswer) {
  Client client(port());
  const std::string half_mebibyte =
      PostOf("/count", std::string(size_t{1} << 19, ' '));
  const std::string four_mebibytes =
      PostOf("/count", std::string(size_t{1} << 22, ' '));
  g_largest_allocation = size_t{1} << 20;
  client.Send(half_mebibyte);
  const std::string small = client.ReceiveAnswer();
  client.Send(four_mebibytes);
  const std::string answer = client.ReceiveAll();
  g_largest_allocation = SIZE_MAX;
  EXPECT_THAT(small, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  ExpectServed();
  EXPECT_EQ(server_->stats().body_bytes, 0);
}

TEST_F(ExceptionsTest, OfAnAnswerThatFindsNoMemoryBecomesAnAnswer) {
  Client client(port());
  g_largest_allocation = size_t{1} << 20;
  client.Send(RequestOf("large"));
  const std::string answer = client.ReceiveAnswer();
  g_largest_allocation = SIZE_MAX;
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  ExpectServed();
}

}  // namespace
}  // namespace sluice::http
