#include "common/device/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/device/make_backends.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

DeviceChoice Gpus(std::vector<std::string> gpus) {
  return {true, std::move(gpus)};
}

TEST(DeviceChoiceTest, NamesOfDevices) {
  EXPECT_EQ(*ParseDevice("cpu"), DeviceChoice());
  EXPECT_EQ(*ParseDevice("cuda"), Gpus({"0"}));
  EXPECT_EQ(*ParseDevice("cuda:0"), Gpus({"0"}));
  EXPECT_EQ(*ParseDevice("cuda:12"), Gpus({"12"}));
  EXPECT_EQ(*ParseDevice("cuda:3,0"), Gpus({"3", "0"}));
  EXPECT_EQ(*ParseDevice("cuda:GPU-1b2c,GPU-3d4e-55"),
            Gpus({"GPU-1b2c", "GPU-3d4e-55"}));
  for (const char* slices : {"cuda:MIG-1b2c,MIG-3d4e", "cuda:0,MIG-3d4e"}) {
    EXPECT_THAT(Message(ParseDevice(slices).status()),
                HasSubstr("names a MIG slice among several GPUs"));
  }
  EXPECT_EQ(*ParseDevice("cuda:MIG-GPU-1b2c/1/0"), Gpus({"MIG-GPU-1b2c/1/0"}));
}

TEST(DeviceChoiceTest, OtherNamesAreRefusedWithWhatTheyAre) {
  for (const std::string text :
       {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:1x",
        "cuda:99999999999", "cpu:0", "cuda:0,", "cuda:,0", "cuda:0,,1",
        "cuda:0,cuda:1", "cuda:GPU-", "cuda:GPU-xyz", "cuda:TPU-1b2c"}) {
    const auto choice = ParseDevice(text);
    ASSERT_EQ(choice.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(choice.status()), HasSubstr("got '" + text + "'"));
  }
  EXPECT_THAT(Message(ParseDevice("cuda:0,1,0").status()),
              HasSubstr("names GPU 0 twice"));
}

TEST(DeviceChoiceTest, SeveralGpusHaveARankEach) {
  EXPECT_EQ(*RanksOn("cpu", 3), 3);
  EXPECT_EQ(*RanksOn("cuda:1", 1), 1);
  EXPECT_EQ(*RanksOn("cuda:1", 4), 4);
  EXPECT_EQ(*RanksOn("cuda:0,1,2", 1), 3);
  EXPECT_EQ(*RanksOn("cuda:0,1,2", 3), 3);
  const Status status = RanksOn("cuda:0,1,2", 2).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("ranks must be 3, got 2"));
}

TEST(DeviceChoiceTest, NumericsOfDevices) {
  const DeviceChoice cpu;
  const DeviceChoice gpu = Gpus({"0"});
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

TEST(DeviceChoiceTest, F32ActivationsGoWithCanonicalNumericsAndCpus) {
  using kernels::BlockActivations;
  constexpr auto kF32 = BlockActivations::kF32;
  EXPECT_TRUE(CheckActivations(kF32, "cpu", "auto").ok());
  EXPECT_TRUE(CheckActivations(kF32, "cuda:0", "canonical").ok());
  EXPECT_TRUE(
      CheckActivations(BlockActivations::kEightBits, "cuda:0", "fast").ok());
  for (const std::string numerics : {"auto", "fast"}) {
    const Status status = CheckActivations(kF32, "cuda:0", numerics);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status),
                HasSubstr("activations 'f32' exclude numerics '" + numerics));
  }
  WeightFormatSet formats;
  formats.Add(kernels::WeightType::kBf16);
  EXPECT_TRUE(CheckWidened(kF32, formats, "GPU-1b").ok());
  formats.Add(kernels::WeightType::kMxfp4);
  EXPECT_TRUE(CheckWidened(kF32, formats, "").ok());
  EXPECT_TRUE(
      CheckWidened(BlockActivations::kEightBits, formats, "GPU-1b").ok());
  const Status status = CheckWidened(kF32, formats, "GPU-1b");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              HasSubstr("activations 'f32' with weights bf16+MXFP4: a GPU"));
}

TEST(DeviceChoiceTest, AGpuThatIsNotThereIsNamed) {
  EXPECT_TRUE(CheckDevice("cpu").ok());
  // No machine has so many.
  const Status status = CheckDevice("cuda:4711");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("device cuda:4711: "));
  for (const std::string name : {"cuda:4710,4711", "cuda:GPU-0000feed"}) {
    EXPECT_EQ(CheckDevice(name).code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(CheckDevice(name)), HasSubstr("device " + name));
  }
  BackendOptions options;
  options.device = "tpu";
  EXPECT_EQ(MakeBackends(options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(DeviceChoiceTest, AutoIsAGpuIfThereIsOneAndSaysWhy) {
  ::testing::internal::CaptureStderr();
  const auto chosen = ChooseDevice("auto");
  FlushLog(std::chrono::seconds(10));
  const std::string told = ::testing::internal::GetCapturedStderr();
  const Status gpu = CheckDevice("cuda");
  EXPECT_EQ(*chosen, gpu.ok() ? "cuda:0" : "cpu");
  EXPECT_THAT(told, HasSubstr("device auto: "));
  if (!gpu.ok()) {
    EXPECT_THAT(told, HasSubstr("the CPU, since " + Message(gpu)));
  }
  EXPECT_EQ(*ChooseDevice("cpu"), "cpu");
  EXPECT_EQ(ChooseDevice("cuda:4711").status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(DeviceChoiceTest, StagesTakeGpusInTurnAndOthersTheFreest) {
  const std::vector<uint64_t> available = {30, 0, 50, 50};
  EXPECT_EQ(TakeGpu(available, 0), 0);
  EXPECT_EQ(TakeGpu(available, 1), 2);  // 1 is not to be used
  EXPECT_EQ(TakeGpu(available, 3), 3);
  EXPECT_EQ(TakeGpu(available, 4), 0);
  EXPECT_EQ(TakeGpu(available, -1), 2);
  EXPECT_EQ(TakeGpu(std::vector<uint64_t>{0, 0}, -1), -1);
  EXPECT_EQ(TakeGpu(std::vector<uint64_t>{0, 0}, 1), -1);
  EXPECT_EQ(TakeGpu({}, 0), -1);
}

TEST(DeviceChoiceTest, ALargeGpuTakesMoreTokensAStep) {
  const StatusOr<int32_t> on_cpu = StepTokensOn("cpu", 1);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_EQ(*on_cpu, 512);
  EXPECT_EQ(StepTokensOfGpu((uint64_t{32} << 30) - 1), 512);
  EXPECT_EQ(StepTokensOfGpu(uint64_t{32} << 30), 2048);
  EXPECT_EQ(StepTokensOn("tpu", 1).status().code(),
            StatusCode::kInvalidArgument);
  const StatusOr<int32_t> on_gpu = StepTokensOn("cuda:0", 1);
  if (on_gpu.ok()) {
    const auto found = FindDevices("cuda:0");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*on_gpu, StepTokensOfGpu((*found)[0].available));
    EXPECT_EQ(*StepTokensOn("cuda:0", 64), 512);
  } else {
    EXPECT_EQ(on_gpu.status().code(), StatusCode::kFailedPrecondition);
  }
}

TEST(DeviceChoiceTest, AHostsMemoryIsFound) {
  const auto found = FindDevices("cpu");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_GT((*found)[0].available, 0u);
}

}  // namespace
}  // namespace sluice
