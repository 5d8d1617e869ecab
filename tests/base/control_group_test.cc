#include "common/base/control_group.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A machine's /proc/self/cgroup and /sys/fs/cgroup in a folder.
class ControlGroupTest : public ::testing::Test {
 protected:
  ControlGroupTest() {
    std::string pattern = fs::temp_directory_path() / "cgroup-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~ControlGroupTest() override { fs::remove_all(root_); }

  void Group(const std::string& text) { Write("/proc/self/cgroup", text); }
  void MemInfo(const std::string& text) { Write("/proc/meminfo", text); }
  void Limit(const std::string& file, const std::string& text) {
    Write("/sys/fs/cgroup/" + file, text);
  }
  ControlGroupLimits Read() const { return ReadControlGroups(root_); }

  std::string root_;

 private:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
};

TEST_F(ControlGroupTest, AMachineWithoutGroupsLimitsNothing) {
  const ControlGroupLimits limits = Read();
  EXPECT_TRUE(std::isinf(limits.cpus));
  EXPECT_EQ(limits.memory_limit, ControlGroupLimits::kNoLimit);
  EXPECT_EQ(limits.memory_left, ControlGroupLimits::kNoLimit);
}

TEST_F(ControlGroupTest, Version2TakesTheLeastOfAGroupAndThoseAbove) {
  Group("0::/sluice.slice/sluice-stage@0.service\n");
  Limit("sluice.slice/sluice-stage@0.service/cpu.max", "max 100000\n");
  Limit("sluice.slice/sluice-stage@0.service/memory.max", "1073741824\n");
  Limit("sluice.slice/sluice-stage@0.service/memory.current", "209715200\n");
  Limit("sluice.slice/sluice-stage@0.service/memory.stat",
        "anon 104857600\nactive_file 52428800\ninactive_file 52428800\n");
  Limit("sluice.slice/cpu.max", "150000 100000\n");
  Limit("sluice.slice/memory.max", "max\n");
  const ControlGroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_limit, 1024 * kMiB);
  EXPECT_EQ(limits.memory_left, (1024 - 100) * kMiB);
}

TEST_F(ControlGroupTest, InAContainerOfVersion2ItsOwnGroupIsTheMount) {
  Group("0::/\n");
  Limit("cpu.max", "50000 100000\n");
  Limit("memory.max", "max\n");
  Limit("memory.high", "268435456\n");
  Limit("memory.current", "300000000\n");
  const ControlGroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpus, 0.5);
  EXPECT_EQ(limits.memory_limit, 256 * kMiB);
  EXPECT_EQ(limits.memory_left, 0u);  // above the limit already
}

TEST_F(ControlGroupTest, Version1HasAFolderForEachController) {
  Group("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  Limit("memory/docker/abc/memory.limit_in_bytes", "536870912\n");
  Limit("memory/docker/abc/memory.usage_in_bytes", "134217728\n");
  Limit("memory/docker/abc/memory.stat",
        "active_file 1\ntotal_active_file 33554432\n"
        "total_inactive_file 33554432\n");
  Limit("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Limit("cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  Limit("cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  Limit("cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  Limit("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const ControlGroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory_limit, 512 * kMiB);
  EXPECT_EQ(limits.memory_left, 448 * kMiB);
}

TEST_F(ControlGroupTest, APathThatLeavesTheMountIsNotFollowed) {
  Group("0::/../../elsewhere\nnot a line\n0::\n");
  Limit("memory.max", "1048576\n");
  Limit("memory.current", "0\n");
  EXPECT_EQ(Read().memory_limit, kMiB);
}

TEST_F(ControlGroupTest, TheMachinesMemoryIsReadByWholeNames) {
  EXPECT_EQ(ReadMemInfo("MemTotal", root_), ControlGroupLimits::kNoLimit);
  MemInfo("MemTotalX:  1 kB\nMemTotal:  2048 kB\nMemAvailable:  1024 kB\n");
  EXPECT_EQ(ReadMemInfo("MemTotal", root_), 2 * kMiB);
  EXPECT_EQ(ReadMemInfo("MemAvailable", root_), kMiB);
  EXPECT_EQ(ReadMemInfo("Mem", root_), ControlGroupLimits::kNoLimit);
}

TEST(UsableCpusTest, AQuotaIsRoundedUpAndNeverAddsCpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int all = CPU_COUNT(&set);
  ControlGroupLimits limits;
  EXPECT_EQ(UsableCpus(limits), all);
  limits.cpus = 0.2;
  EXPECT_EQ(UsableCpus(limits), 1);
  limits.cpus = 1.5;
  EXPECT_EQ(UsableCpus(limits), std::min(all, 2));
  limits.cpus = 1e9;
  EXPECT_EQ(UsableCpus(limits), all);
}

}  // namespace
}  // namespace sluice
