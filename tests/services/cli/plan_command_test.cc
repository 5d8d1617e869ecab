#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/device/make_backends.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// More layers than machines have GPUs, and room on each for all of them.
constexpr char kSmall[] = R"({"model_type": "llama",
  "hidden_size": 256, "num_hidden_layers": 64, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
  "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "max_position_embeddings": 4096, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16"})";

// What `sluice plan` of that model returns and prints, given `words`.
struct Planned {
  explicit Planned(Words words) {
    const std::string folder = Cat(::testing::TempDir(), "plan-", getpid());
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << kSmall;
    words.insert(words.begin(), {"plan", folder});
    CommandLine sluice("0");
    AddPlan(sluice);
    ::testing::internal::CaptureStdout();
    status = sluice.Run(words);
    text = ::testing::internal::GetCapturedStdout();
    std::filesystem::remove_all(folder);
  }

  Status status;
  std::string text;
};

TEST(PlanCommandTest, FiguresAreAMachineForEachOfTheCount) {
  const Planned planned(
      {"--machine", "1G,1000", "--count", "2", "--stages", "2"});
  EXPECT_TRUE(planned.status.ok()) << planned.status;
  EXPECT_THAT(planned.text,
              AllOf(HasSubstr("stage 0  m-0 "), HasSubstr("stage 1  m-1 ")));
}

#ifndef SLUICE_CUDA
TEST(PlanCommandTest, ABuildWithoutCudaHasNoGpusToPlanFor) {
  const Planned planned({"--machine", "gpus"});
  EXPECT_EQ(planned.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(planned.status),
            "--machine gpus: device cuda: this build has no CUDA; configure "
            "one with -DSLUICE_CUDA=ON");
  EXPECT_EQ(planned.text, "");
}
#else
TEST(PlanCommandTest, AMachineWithoutAGpuSaysWhatIsMissing) {
  if (CountGpus().ok()) GTEST_SKIP() << "this machine has a GPU";
  const Planned planned({"--machine", "gpus"});
  EXPECT_EQ(planned.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      Message(planned.status),
      AllOf(StartsWith("--machine gpus: device cuda: "),
            AnyOf(EndsWith("there is no NVIDIA driver (libcuda.so.1)"),
                  EndsWith("there is no GPU (CUDA_VISIBLE_DEVICES may hide "
                           "it)"))));
  EXPECT_EQ(planned.text, "");
}
#endif

TEST(PlanCommandTest, TwoMachinesWithTheGpusOfThisOneHaveThemByName) {
  const auto count = CountGpus();
  if (!count.ok()) GTEST_SKIP() << count.status();
  const Planned planned({"--machine", "gpus", "--count", "2"});
  EXPECT_TRUE(planned.status.ok()) << planned.status;
  EXPECT_THAT(planned.text,
              AllOf(HasSubstr(" gpu-0-0 "), HasSubstr(" gpu-0-1 ")));
}

}  // namespace
}  // namespace sluice::cli
