#include "common/grammar/matcher_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace sluice {
namespace {

using Lane = MatcherThreads::Lane;

int PolicyOf(MatcherThreads& threads, Lane lane) {
  std::promise<int> policy;
  threads.Run([&] { policy.set_value(sched_getscheduler(0)); }, lane);
  return policy.get_future().get();
}

TEST(MatcherThreadsTest, TheIdleLaneYieldsToAllOthers) {
  MatcherThreads threads(2);
  EXPECT_EQ(PolicyOf(threads, Lane::kNormal), sched_getscheduler(0));
  EXPECT_EQ(PolicyOf(threads, Lane::kIdle), SCHED_IDLE);
}

TEST(MatcherThreadsTest, AJobOfOneLaneDelaysNoneOfTheOther) {
  MatcherThreads threads(1);
  for (const Lane blocked : {Lane::kNormal, Lane::kIdle}) {
    std::promise<void> go;
    std::promise<void> done;
    threads.Run(
        [&] {
          go.get_future().wait();
          done.set_value();
        },
        blocked);
    const Lane other = blocked == Lane::kNormal ? Lane::kIdle : Lane::kNormal;
    EXPECT_GE(PolicyOf(threads, other), 0);
    go.set_value();
    done.get_future().wait();
  }
}

TEST(MatcherThreadsTest, StopDropsWhatWaits) {
  MatcherThreads threads(1);
  std::promise<void> begun, go;
  bool second = false;
  threads.Run(
      [&] {
        begun.set_value();
        go.get_future().wait();
      },
      Lane::kNormal);
  threads.Run([&] { second = true; }, Lane::kNormal);
  begun.get_future().wait();
  std::thread stopper([&] { threads.Stop(); });
  // Stop has dropped the second job once a job of the free lane is dropped too.
  for (bool dropped = false; !dropped;) {
    auto token = std::make_shared<int>();
    const std::weak_ptr<int> held = token;
    threads.Run([token = std::move(token)] {}, Lane::kNormal);
    dropped = held.expired();
  }
  go.set_value();
  stopper.join();
  EXPECT_FALSE(second);
}

}  // namespace
}  // namespace sluice
