#include "common/concurrency/short_slices.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace sluice {
namespace {

// The start of the kernel's struct sched_attr.
struct SchedulingAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

SchedulingAttributes OfThisThread() {
  SchedulingAttributes attributes = {};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0U),
            0);
  return attributes;
}

// A thread of its own: the slice stays with the thread.
TEST(ShortSlicesTest, TheThreadsSliceAloneChanges) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 3), 0);
    const SchedulingAttributes before = OfThisThread();
    AskForShortSlices();
    const SchedulingAttributes after = OfThisThread();
    EXPECT_EQ(after.policy, uint32_t{SCHED_OTHER});
    EXPECT_EQ(after.nice, 3);
    if (before.runtime == 0) {
      GTEST_SKIP() << "this system gives no thread a slice of its own";
    }
    EXPECT_EQ(after.runtime, 200'000u);
    EXPECT_LT(after.runtime, before.runtime);
  }).join();
}

}  // namespace
}  // namespace sluice
