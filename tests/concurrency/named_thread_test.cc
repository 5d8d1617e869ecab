#include "common/concurrency/named_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <string>

namespace sluice {
namespace {

std::string CurrentThreadName() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(NamedThreadTest, TheSystemShowsTheNameCutToItsLimit) {
  std::string seen;
  NamedThread thread("a-name-longer-than-the-limit",
                     [&] { seen = CurrentThreadName(); });
  thread.Join();
  EXPECT_EQ(seen, "a-name-longer-t");
  EXPECT_FALSE(thread.joinable());
}

TEST(NamedThreadTest, AssigningJoinsTheThreadHeldSoFar) {
  std::atomic<int> done{0};
  NamedThread thread("one", [&] { ++done; });
  thread = NamedThread("two", [&] { ++done; });
  EXPECT_GE(done, 1);
  thread.Join();
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace sluice
