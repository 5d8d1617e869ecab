#include "common/metrics/watched_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>

#include "tests/nvml/fake_nvml.h"

namespace sluice::metrics {
namespace {

using ::sluice::testing::FakeGpu;
using ::sluice::testing::FakeNvml;
using ::testing::HasSubstr;
using ::testing::Not;

class WatchedGpusTest : public ::testing::Test {
 protected:
  WatchedGpusTest() {
    first_.total = 80;
    first_.used = 5;
    first_.busy = 25;
    second_.total = 40;
    second_.used = 7;
    second_.busy = 50;
    plan_.gpus = {&first_, &second_};
    EXPECT_STREQ(sluice::testing::TellFakeNvml(SLUICE_FAKE_NVML, &plan_),
                 nullptr);
  }

  void Start(WatchedGpus& gpus) {
    gpus.Start({"GPU-a", "GPU-b"}, SLUICE_FAKE_NVML, [](const std::string&) {});
  }
  std::string Scrape(WatchedGpus& gpus) {
    gpus.OnScrape();
    return registry_.Text();
  }
  // Whether a scrape has the line within a minute.
  bool Shows(WatchedGpus& gpus, const std::string& line) {
    for (int i = 0; i < 12000; ++i) {
      if (Scrape(gpus).find(line) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  FakeGpu first_{"GPU-a"};
  FakeGpu second_{"GPU-b"};
  FakeNvml plan_;
  Registry registry_;
};

TEST_F(WatchedGpusTest, ReadingsAreSeriesByGpu) {
  WatchedGpus gpus(&registry_, kStageGpuSeries);
  Start(gpus);
  std::string text = Scrape(gpus);
  for (const char* line :
       {"sluice_stage_gpu_memory_used_bytes{gpu=\"GPU-a\"} 5\n",
        "sluice_stage_gpu_memory_used_bytes{gpu=\"GPU-b\"} 7\n",
        "sluice_stage_gpu_memory_total_bytes{gpu=\"GPU-b\"} 40\n",
        "sluice_stage_gpu_busy_ratio{gpu=\"GPU-a\"} 0.25\n",
        "sluice_stage_gpu_ecc_errors_total{gpu=\"GPU-b\"} 0\n",
        "sluice_stage_gpu_xid_errors_total{gpu=\"GPU-a\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  first_.used = 6;
  second_.ecc_errors = 2;
  first_.xid = 31;
  for (const char* line :
       {"sluice_stage_gpu_memory_used_bytes{gpu=\"GPU-a\"} 6\n",
        "sluice_stage_gpu_ecc_errors_total{gpu=\"GPU-b\"} 2\n",
        "sluice_stage_gpu_xid_errors_total{gpu=\"GPU-a\"} 1\n"}) {
    EXPECT_TRUE(Shows(gpus, line)) << line;
  }
}

TEST_F(WatchedGpusTest, AHostOfExpertsHasTheSameSeriesByItsNames) {
  WatchedGpus stage(&registry_, kStageGpuSeries);
  Start(stage);
  std::string of_a_stage = Scrape(stage);
  EXPECT_THAT(of_a_stage, Not(HasSubstr("sluice_expert_")));
  const std::regex name("sluice_stage_gpu_");
  of_a_stage = std::regex_replace(of_a_stage, name, "sluice_expert_gpu_");
  Registry registry;
  WatchedGpus experts(&registry, kExpertGpuSeries);
  Start(experts);
  experts.OnScrape();
  EXPECT_EQ(registry.Text(), of_a_stage);
}

TEST_F(WatchedGpusTest, TheGpusOfTheFirstStartStay) {
  WatchedGpus gpus(&registry_, kStageGpuSeries);
  Start(gpus);
  gpus.Start({"GPU-c"}, SLUICE_FAKE_NVML);
  const std::string text = Scrape(gpus);
  EXPECT_THAT(text, HasSubstr("{gpu=\"GPU-b\"}"));
  EXPECT_THAT(text, Not(HasSubstr("GPU-c")));
}

TEST_F(WatchedGpusTest, OnACpuAndWithoutNvmlThereAreNoSeries) {
  WatchedGpus gpus(&registry_, kStageGpuSeries);
  gpus.Start({}, SLUICE_FAKE_NVML);
  EXPECT_THAT(Scrape(gpus), Not(HasSubstr("_gpu_")));
  gpus.Start({"GPU-a"}, "libnvml-that-is-nowhere.so");
  EXPECT_THAT(Scrape(gpus), Not(HasSubstr("_gpu_")));
}

}  // namespace
}  // namespace sluice::metrics
