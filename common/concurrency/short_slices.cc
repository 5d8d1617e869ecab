#include "common/concurrency/short_slices.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace sluice {
namespace {

constexpr uint64_t kSliceNs = 200'000;  // the system's own: about 3 ms

// The kernel's struct sched_attr. Its header clashes with <sched.h>.
struct SchedulingWish {
  uint32_t size = 48;
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t slice_ns = kSliceNs;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingWish) == 48);

}  // namespace

void AskForShortSlices() {
  if (sched_getscheduler(0) != SCHED_OTHER)
    return;  // the operator chose another
  SchedulingWish wish;
  wish.nice = getpriority(PRIO_PROCESS, 0);  // this thread's
  syscall(SYS_sched_setattr, 0, &wish, 0U);
}

}  // namespace sluice
