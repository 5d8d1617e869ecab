#include "common/tools/doctor/machine_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/cat.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A machine's /proc, /sys and /dev in a folder.
class MachineFactsTest : public ::testing::Test {
 protected:
  MachineFactsTest()
      : root_((fs::temp_directory_path() / Cat("machine-", ::getpid()))
                  .string()) {
    Write("/proc/cpuinfo", "processor : 0\nx : y\n\nprocessor : 1\n");
    Write("/proc/meminfo",
          "MemTotal:       8388608 kB\nMemFree: 1 kB\n"
          "MemAvailable:   4194304 kB\n");
    Write("/sys/kernel/mm/transparent_hugepage/enabled",
          "always [madvise] never\n");
  }
  ~MachineFactsTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_;
};

TEST_F(MachineFactsTest, FactsComeFromTheKernelsFiles) {
  Write("/dev/nvidia0", "");
  Write("/dev/nvidia1", "");
  Write("/dev/nvidiactl", "");
  const MachineFacts facts = ReadMachineFacts(root_);
  EXPECT_EQ(facts.cpus, 2);
  EXPECT_GE(facts.usable_cpus, 1);
  EXPECT_EQ(facts.memory, 8 * kGiB);
  EXPECT_EQ(facts.available_memory, 4 * kGiB);
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.gpus, 2);
  EXPECT_EQ(facts.groups.memory_limit, ControlGroupLimits::kNoLimit);
}

TEST_F(MachineFactsTest, AControlGroupBoundsTheMachine) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "2147483648\n");
  Write("/sys/fs/cgroup/a/memory.current", "1073741824\n");
  Write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  const MachineFacts facts = ReadMachineFacts(root_);
  EXPECT_EQ(facts.groups.memory_left, kGiB);
  EXPECT_EQ(facts.groups.cpus, 0.5);
  EXPECT_EQ(facts.usable_cpus, 1);
}

MachineFacts Healthy() {
  MachineFacts facts;
  facts.cpu = "CPU";
  facts.isa = "avx2";
  facts.cpus = 8;
  facts.usable_cpus = 8;
  facts.memory = 64 * kGiB;
  facts.available_memory = 60 * kGiB;
  facts.huge_pages = "madvise";
  facts.open_files = 1 << 20;
  facts.read_gb_per_s = 40;
  return facts;
}

// Returns the finding of `area`, which must be there once.
Finding Of(const MachineFacts& facts, const std::string& area) {
  const Findings findings = JudgeMachine(facts);
  const auto same = [&](const Finding& one) { return one.area == area; };
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), same), 1) << area;
  return *std::find_if(findings.begin(), findings.end(), same);
}

TEST(JudgeMachineTest, AHealthyMachineHasNoComplaint) {
  for (const Finding& finding : JudgeMachine(Healthy())) {
    EXPECT_EQ(finding.level, Level::kFine) << finding.area;
    EXPECT_EQ(finding.advice, "");
  }
}

TEST(JudgeMachineTest, EachFaultHasItsFinding) {
  MachineFacts facts = Healthy();
  facts.huge_pages = "never";
  EXPECT_EQ(Of(facts, "huge pages").level, Level::kNote);
  facts.isa = "portable";
  EXPECT_EQ(Of(facts, "instruction set").level, Level::kNote);
  facts.open_files = 1024;
  EXPECT_THAT(Of(facts, "open files").advice, HasSubstr("ulimit -n 4096"));
  facts.groups.cpus = 1.5;
  EXPECT_THAT(Of(facts, "CPUs").what, HasSubstr("quota is 1.5 CPUs"));
  facts.gpus = 1;
  EXPECT_EQ(Of(facts, "GPUs").level, Level::kNote);
  EXPECT_EQ(Of(facts, "memory").level, Level::kFine);
  facts.groups.memory_limit = 2 * kGiB;
  facts.groups.memory_left = kGiB / 2;
  EXPECT_EQ(Of(facts, "memory").level, Level::kProblem);
  EXPECT_THAT(Of(facts, "memory").what,
              HasSubstr("0.5 GiB free of 2 GiB; the control group's limit"));
}

TEST(MeasureMachineTest, ThisMachineReadsMemory) {
  MachineFacts facts = ReadMachineFacts();
  MeasureMachine(facts);
  EXPECT_GT(facts.read_gb_per_s, 0);
  EXPECT_NE(facts.isa, "");
  EXPECT_GE(facts.cpus, facts.usable_cpus);
}

}  // namespace
}  // namespace sluice::doctor
