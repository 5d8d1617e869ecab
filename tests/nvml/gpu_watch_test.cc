#include "common/nvml/gpu_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/end_process.h"
#include "tests/nvml/fake_nvml.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Faults that a watch tells of in the place of ending the process.
class Faults {
 public:
  std::function<void(const std::string&)> Taker() {
    return [this](const std::string& why) {
      MutexLock lock(mutex_);
      all_.push_back(why);
    };
  }
  std::vector<std::string> all() {
    MutexLock lock(mutex_);
    return all_;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> all_ ABSL_GUARDED_BY(mutex_);
};

// Whether `holds` is true within a minute.
bool Becomes(const std::function<bool()>& holds) {
  for (int i = 0; i < 12000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return holds();
}

class GpuWatchTest : public ::testing::Test {
 protected:
  GpuWatchTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    first_.total = 80;
    first_.used = 30;
    first_.busy = 75;
    first_.ecc_errors = 4;  // before this process
    second_.total = 40;
    second_.has_ecc = false;
    second_.parent = &whole_;
    second_.instance = 3;
    whole_.events = 8;  // no ECC
    plan_.gpus = {&first_, &second_, &whole_};
    EXPECT_STREQ(TellFakeNvml(SLUICE_FAKE_NVML, &plan_), nullptr);
  }
  StatusOr<std::unique_ptr<GpuWatch>> Start(
      const std::vector<std::string>& ids) {
    return GpuWatch::Start(ids, SLUICE_FAKE_NVML, faults_.Taker());
  }

  FakeGpu first_{"GPU-1"};
  FakeGpu second_{"MIG-2"};  // a slice of the next
  FakeGpu whole_{"GPU-9"};
  FakeNvml plan_;
  Faults faults_;
};

TEST_F(GpuWatchTest, ReadsGpusAndSlicesInTheOrderOfTheIds) {
  {
    auto watch = Start({"GPU-2", "GPU-1"});
    ASSERT_TRUE(watch.ok()) << watch.status();
    auto readings = (*watch)->Readings();
    ASSERT_EQ(readings.size(), 2u);
    EXPECT_EQ(readings[0].memory_total, 40u);
    EXPECT_EQ(readings[1].memory_total, 80u);
    EXPECT_EQ(readings[1].memory_used, 30u);
    EXPECT_EQ(readings[1].busy, 0.75);
    EXPECT_EQ(readings[1].ecc_errors, 0u);
    first_.used = 50;
    EXPECT_TRUE(
        Becomes([&] { return (*watch)->Readings()[1].memory_used == 50u; }));
    EXPECT_EQ(plan_.event_sets, 1);
  }
  EXPECT_EQ(plan_.event_sets, 0);
  EXPECT_THAT(faults_.all(), ElementsAre());
}

TEST_F(GpuWatchTest, AnErrorOfTheGpuIsAFaultAndAProgramsIsNot) {
  auto watch = Start({"GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  first_.xid = 31;  // a program's page fault
  EXPECT_TRUE(Becomes([&] { return (*watch)->Readings()[0].xid_errors == 1; }));
  EXPECT_THAT(faults_.all(), ElementsAre());
  first_.xid = 79;  // fallen off the bus
  EXPECT_TRUE(Becomes([&] { return faults_.all().size() == 1; }));
  EXPECT_THAT(faults_.all(),
              ElementsAre(HasSubstr("GPU GPU-1: the driver tells of XID 79")));
}

TEST_F(GpuWatchTest, AContainedErrorIsCountedAlone) {
  auto watch = Start({"GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  uint64_t count = 0;
  for (const uint64_t xid : {63, 92, 94, 45}) {
    first_.xid = xid;
    ++count;
    EXPECT_TRUE(
        Becomes([&] { return (*watch)->Readings()[0].xid_errors == count; }));
  }
  EXPECT_THAT(faults_.all(), ElementsAre());
}

TEST_F(GpuWatchTest, AGpuWithoutEccTellsOfItsXids) {
  auto watch = Start({"GPU-9"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(whole_.registered, 8u);
  whole_.xid = 79;
  EXPECT_TRUE(Becomes([&] { return !faults_.all().empty(); }));
}

TEST_F(GpuWatchTest, ASliceIsToldOfItsOwnAndOfItsGpusXids) {
  auto watch = Start({"GPU-2", "GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  whole_.xid_instance = 4;  // another slice's
  whole_.xid = 79;
  EXPECT_TRUE(Becomes([&] { return whole_.xid == 0; }));
  first_.xid = 31;  // is taken after that
  EXPECT_TRUE(
      Becomes([&] { return (*watch)->Readings()[1].xid_errors == 1u; }));
  EXPECT_EQ((*watch)->Readings()[0].xid_errors, 0u);
  EXPECT_THAT(faults_.all(), ElementsAre());
  whole_.xid_instance = 3;
  whole_.xid = 79;
  EXPECT_TRUE(Becomes([&] { return faults_.all().size() == 1; }));
  EXPECT_THAT(faults_.all(), ElementsAre(HasSubstr("GPU GPU-2: ")));
}

TEST_F(GpuWatchTest, AGpuThatIsLostOrMustBeResetIsAFaultAndHasNoReading) {
  for (const auto& [result, words] :
       {std::pair(15, "GPU GPU-1: GPU is lost"),
        std::pair(16, "GPU GPU-1: GPU requires reset")}) {
    Faults faults;
    auto watch = GpuWatch::Start({"GPU-1"}, SLUICE_FAKE_NVML, faults.Taker());
    ASSERT_TRUE(watch.ok()) << watch.status();
    EXPECT_EQ((*watch)->Readings()[0].memory_used, 30u);
    first_.result = result;
    EXPECT_TRUE(
        Becomes([&] { return (*watch)->Readings()[0].memory_used == 0u; }));
    EXPECT_EQ((*watch)->Readings()[0].busy, 0.0);
    EXPECT_THAT(faults.all(), ElementsAre(HasSubstr(words)));
    first_.result = 0;
  }
}

TEST_F(GpuWatchTest, AWaitForEventsThatLosesAGpuIsAFault) {
  auto watch = Start({"GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  plan_.wait_result = 15;
  EXPECT_TRUE(Becomes([&] { return !faults_.all().empty(); }));
  EXPECT_THAT(faults_.all()[0], HasSubstr("GPU is lost"));
}

// What the first count says came before the process.
TEST_F(GpuWatchTest, ACountOfErrorsThatComesLateIsNoFault) {
  first_.has_ecc = false;
  auto watch = Start({"GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  first_.has_ecc = true;
  first_.used = 50;
  EXPECT_TRUE(
      Becomes([&] { return (*watch)->Readings()[0].memory_used == 50u; }));
  first_.used = 60;  // a whole reading later
  EXPECT_TRUE(
      Becomes([&] { return (*watch)->Readings()[0].memory_used == 60u; }));
  EXPECT_THAT(faults_.all(), ElementsAre());
  first_.ecc_errors = 5;
  EXPECT_TRUE(Becomes([&] { return !faults_.all().empty(); }));
  EXPECT_THAT(faults_.all()[0], HasSubstr("1 errors that it did not correct"));
}

TEST_F(GpuWatchTest, AnErrorThatMemoryDoesNotCorrectIsAFault) {
  auto watch = Start({"GPU-1"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  first_.ecc_errors = 6;
  EXPECT_TRUE(Becomes([&] { return !faults_.all().empty(); }));
  EXPECT_THAT(faults_.all()[0], HasSubstr("2 errors that it did not correct"));
  EXPECT_EQ((*watch)->Readings()[0].ecc_errors, 2u);
}

TEST_F(GpuWatchTest, WithoutALibraryOrAGpuItSaysWhatIsMissing) {
  EXPECT_EQ(
      GpuWatch::Start({"GPU-1"}, "libnvml-that-is-nowhere.so").status().code(),
      StatusCode::kNotFound);
  EXPECT_THAT(Message(GpuWatch::Start({"GPU-1"}, "libm.so.6").status()),
              HasSubstr("libm.so.6 has no nvml"));
  EXPECT_THAT(Message(Start({"GPU-3"}).status()),
              HasSubstr("GPU GPU-3: Not Found"));
  plan_.init_result = 3;
  EXPECT_THAT(Message(Start({"GPU-1"}).status()), HasSubstr("Not Supported"));
}

TEST_F(GpuWatchTest, AFaultEndsTheProcessForAnotherToTakeItsPlace) {
  EXPECT_EXIT(
      {
        first_.xid = 48;
        const auto watch = GpuWatch::Start({"GPU-1"}, SLUICE_FAKE_NVML);
        Becomes([] { return false; });  // the watch ends the process
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(kToBeReplaced), "XID 48: this process ends");
}

}  // namespace
}  // namespace sluice::testing
