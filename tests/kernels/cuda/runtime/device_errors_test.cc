#include "kernels/cuda/runtime/device_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(DeviceErrorsTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(DriverError(0), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(DriverError(12040),
              HasSubstr("too old: it runs CUDA 12.4, this build needs 13.0"));
  EXPECT_EQ(IndexError(1, 2), "");
  EXPECT_THAT(IndexError(0, 0), HasSubstr("there is no GPU"));
  EXPECT_THAT(IndexError(2, 2), HasSubstr("GPU 2 is not there"));
  EXPECT_THAT(IndexError(2, 2), HasSubstr("there are GPUs 0 to 1"));
  EXPECT_EQ(ArchitectureError(0, "NVIDIA A100", 8, 0), "");
  EXPECT_EQ(ArchitectureError(0, "NVIDIA B200", 10, 0), "");
  EXPECT_EQ(ArchitectureError(3, "Tesla T4", 7, 5),
            "GPU 3 (Tesla T4) is of sm_75: the oldest that Sluice runs on is "
            "sm_80");
}

TEST(DeviceErrorsTest, AnIdIsSixteenBytes) {
  const char bytes[16] = {0,          1,          0x22,       0x33,
                          0x44,       0x55,       0x66,       0x77,
                          char(0x88), char(0x99), char(0xAA), char(0xBB),
                          char(0xCC), char(0xDD), char(0xEE), char(0xFF)};
  EXPECT_EQ(IdOf(bytes), "GPU-00012233-4455-6677-8899-aabbccddeeff");
}

TEST(DeviceErrorsTest, TheBeginningOfAnIdIsEnoughIfItIsOnesAlone) {
  const std::vector<std::string> ids = {"GPU-1b2c3d4e-0001", "GPU-1b2c9999-02",
                                        "GPU-ff00ff00-03"};
  std::string error;
  EXPECT_EQ(FindId(ids, "GPU-1b2c3d4e-0001", &error), 0);
  EXPECT_EQ(FindId(ids, "GPU-1B2C9", &error), 1);
  // CUDA gives a slice's digits without its prefix.
  EXPECT_EQ(FindId(ids, "MIG-ff00", &error), 2);
  EXPECT_EQ(error, "");
  EXPECT_EQ(FindId(ids, "GPU-1b2c", &error), -1);
  EXPECT_EQ(error,
            "GPU GPU-1b2c may be GPU-1b2c3d4e-0001 or GPU-1b2c9999-02: name "
            "more of its id");
  EXPECT_EQ(FindId(ids, "GPU-77", &error), -1);
  EXPECT_THAT(error, HasSubstr("GPU GPU-77 is not there"));
  EXPECT_THAT(error, HasSubstr("GPU-ff00ff00-03"));
}

}  // namespace
}  // namespace sluice::kernels::cuda
