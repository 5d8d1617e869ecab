#include "common/device/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/device/make_backends.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(DeviceChoiceTest, NamesOfDevices) {
  EXPECT_EQ(*ParseDevice("cpu"), (DeviceChoice{false, 0}));
  EXPECT_EQ(*ParseDevice("cuda"), (DeviceChoice{true, 0}));
  EXPECT_EQ(*ParseDevice("cuda:0"), (DeviceChoice{true, 0}));
  EXPECT_EQ(*ParseDevice("cuda:12"), (DeviceChoice{true, 12}));
}

TEST(DeviceChoiceTest, OtherNamesAreRefusedWithWhatTheyAre) {
  for (const std::string text : {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1",
                                 "cuda:1x", "cuda:99999999999", "cpu:0"}) {
    const auto choice = ParseDevice(text);
    ASSERT_EQ(choice.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(choice.status()), HasSubstr("got '" + text + "'"));
  }
  EXPECT_EQ(ParseDevice("cuda:0,1").status().code(),
            StatusCode::kUnimplemented);
}

TEST(DeviceChoiceTest, NumericsOfDevices) {
  const DeviceChoice cpu;
  const DeviceChoice gpu = {true, 0};
  EXPECT_EQ(*ParseNumerics("auto", cpu), Numerics::kCanonical);
  EXPECT_EQ(*ParseNumerics("canonical", cpu), Numerics::kCanonical);
  EXPECT_EQ(*ParseNumerics("auto", gpu), Numerics::kFast);
  EXPECT_EQ(*ParseNumerics("fast", gpu), Numerics::kFast);
  EXPECT_EQ(*ParseNumerics("canonical", gpu), Numerics::kCanonical);
  EXPECT_THAT(Message(ParseNumerics("Fast", gpu).status()),
              HasSubstr("got 'Fast'"));
  // A CPU has no fast ones, and says so before anything is loaded.
  const Status status = CheckNumerics("cpu", "fast");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("a CPU has canonical ones alone"));
  BackendOptions options;
  options.numerics = "fast";
  EXPECT_EQ(MakeBackends(options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(DeviceChoiceTest, AGpuThatIsNotThereIsNamed) {
  EXPECT_TRUE(CheckDevice("cpu").ok());
  // No machine has so many.
  const Status status = CheckDevice("cuda:4711");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("device cuda:4711: "));
  BackendOptions options;
  options.device = "tpu";
  EXPECT_EQ(MakeBackends(options).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
