// Coroutines whose operations find no memory end, and nothing else does.
#include "common/http/loop_executor.h"

#include <gtest/gtest.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"
#include "common/http/task.h"
#include "tests/testing/failing_calls.h"

namespace sluice::http {
namespace {

namespace net = boost::asio;
using sluice::testing::FailingAllocation;

constexpr int kCoroutines = 32;

// Asio's timers and sockets ask an executor for its context, no copy of it.
static_assert(
    std::is_same_v<decltype(net::query(std::declval<const TaskExecutor&>(),
                                       net::execution::context)),
                   net::io_context&>);

struct Waits {
  int begun = 0;
  int ended = 0;  // with the coroutine's variables
};

// Counts a coroutine, however it ends.
class Ended {
 public:
  explicit Ended(Waits& waits) : waits_(waits) { ++waits_.begun; }
  ~Ended() { ++waits_.ended; }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

 private:
  Waits& waits_;
};

Task<void> Wait(net::steady_timer& timer, Waits& waits) {
  const Ended ended(waits);
  boost::system::error_code error;
  auto token = Redirect(error);
  timer.expires_after(std::chrono::hours(1));
  co_await timer.async_wait(token);
}

class LoopExecutorTest : public ::testing::Test {
 protected:
  void SpawnAll() {
    for (int i = 0; i < kCoroutines; ++i) {
      timers_.push_back(
          std::make_unique<net::steady_timer>(io_->get_executor()));
      Spawn(io_->get_executor(), Wait(*timers_.back(), waits_),
            [](const std::exception_ptr&) {});
    }
  }
  // Runs the events that are there. Returns those that ended with an exception.
  int RunEvents() {
    int thrown = 0;
    bool more = true;
    while (more) {
      const Status ran = CatchExceptions("test", [&] {
        reserve_.Run();
        more = io_->poll_one() > 0;
      });
      thrown += ran.ok() ? 0 : 1;
    }
    return thrown;
  }

  Waits waits_;
  std::optional<net::io_context> io_{1};
  LoopReserve& reserve_ = LoopReserve::Of(*io_);
  std::vector<std::unique_ptr<net::steady_timer>> timers_;
};

// From each allocation on there is none: the wait's frame finds memory, and its
// operation and the end of the coroutine do not.
TEST_F(LoopExecutorTest, WaitsWithoutMemoryEndThemselvesAlone) {
  int thrown = 0;
  for (uint64_t n = 1; n <= kCoroutines; ++n) {
    waits_ = {};
    SpawnAll();
    {
      const FailingAllocation failing(n, 1, /*lasts=*/true);
      thrown += RunEvents();
    }
    EXPECT_EQ(waits_.begun, kCoroutines);
    EXPECT_GT(waits_.ended, 0);
    for (const auto& timer : timers_) timer->cancel();
    EXPECT_EQ(RunEvents(), 0);
    EXPECT_EQ(waits_.ended, kCoroutines);
    timers_.clear();
    io_->restart();
  }
  EXPECT_GT(thrown, 0);
}

TEST_F(LoopExecutorTest, WhatIsKeptEndsWithTheLoop) {
  auto count = std::make_shared<int>(0);
  reserve_.Keep([count] { ++*count; });
  reserve_.Run();
  EXPECT_EQ(*count, 1);
  reserve_.Run();
  EXPECT_EQ(*count, 1);
  reserve_.Keep([count] { ++*count; });
  EXPECT_EQ(count.use_count(), 2);
  io_.reset();
  EXPECT_EQ(*count, 1);
  EXPECT_EQ(count.use_count(), 1);
}

TEST_F(LoopExecutorTest, MoreThanThereIsRoomForIsRefused) {
  int run = 0, kept = 0;
  const Status full = CatchExceptions("test", [&] {
    while (kept < 100'000) {
      reserve_.Keep([&run] { ++run; });
      ++kept;
    }
  });
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_GE(kept, kCoroutines);
  reserve_.Run();
  EXPECT_EQ(run, kept);
}

}  // namespace
}  // namespace sluice::http
