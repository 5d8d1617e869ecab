#include "common/base/memory_node.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace sluice {
namespace {

// Of <linux/mempolicy.h>.
constexpr int kMpolDefault = 0;
constexpr int kMpolPreferred = 1;
constexpr unsigned long kOfAddress = 2;
constexpr unsigned long kNodeOfPage = 1;

constexpr size_t kPages = 4;

// The policy of the page at `address`, or its node.
int AskSystem(const void* address, unsigned long what) {
  int answer = -1;
  const long result = syscall(SYS_get_mempolicy, &answer, nullptr, 0UL, address,
                              kOfAddress | what);
  return result == 0 ? answer : -1;
}

class MemoryNodeTest : public ::testing::Test {
 protected:
  MemoryNodeTest() {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    memory_ = static_cast<std::byte*>(mmap(nullptr, kPages * page_,
                                           PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~MemoryNodeTest() override { munmap(memory_, kPages * page_); }

  size_t page_ = 0;
  std::byte* memory_ = nullptr;
};

TEST_F(MemoryNodeTest, WholePagesComeFromTheNode) {
  const int node = NodeOfCpus({sched_getcpu()});
  if (node == kAnyNode || AskSystem(memory_, 0) == -1) {
    GTEST_SKIP() << "this system tells nothing of nodes";
  }
  // The first and the last page only in part.
  PreferNode(memory_ + 1, kPages * page_ - 2, node);
  for (size_t i = 0; i < kPages; ++i) {
    std::byte* const page = memory_ + i * page_;
    *page = std::byte{1};
    const bool is_whole = i != 0 && i + 1 != kPages;
    EXPECT_EQ(AskSystem(page, 0), is_whole ? kMpolPreferred : kMpolDefault)
        << i;
    if (is_whole) {
      EXPECT_EQ(AskSystem(page, kNodeOfPage), node);
    }
  }
}

TEST_F(MemoryNodeTest, AnyNodeChangesNothing) {
  PreferNode(memory_, kPages * page_, kAnyNode);
  PreferNode(memory_, 1, 0);  // no whole page
  PreferNode(nullptr, 0, 0);
  if (AskSystem(memory_, 0) == -1) GTEST_SKIP() << "no get_mempolicy here";
  EXPECT_EQ(AskSystem(memory_, 0), kMpolDefault);
}

TEST_F(MemoryNodeTest, CpusOfNoNodeOrNoneHaveAnyNode) {
  EXPECT_EQ(NodeOfCpus({}), kAnyNode);
  EXPECT_EQ(NodeOfCpus({1 << 20}), kAnyNode);
  EXPECT_EQ(NodeOfCpus({0, 1 << 20}), kAnyNode);
}

}  // namespace
}  // namespace sluice
