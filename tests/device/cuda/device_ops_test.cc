// Every operation of the backend over device code against the CPU's, bit for
// bit. tests/gpu/run tries the same operations on a GPU.
#include "tests/device/cuda/device_ops.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/device/cuda/device_backends.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {
namespace {

std::vector<float> ResultsOn(const BackendFactory& factory, const DeviceOp& op,
                             int times) {
  BackendOptions options;
  options.threads = 1;
  options.kv_type = op.kv_type;
  auto backends = factory(options);
  EXPECT_TRUE(backends.ok()) << backends.status();
  Backend& backend = *(*backends)[0];
  const auto prepared = op.prepare(backend);
  for (int i = 0; i < times; ++i) {
    backend.BeginStep(prepared->step());
    prepared->Enqueue();
    backend.EndStep();
  }
  return prepared->Results();
}

// On matrix units: close to the CPU, and the same in either order of threads.
void ExpectFastOps(const OpSizes& sizes) {
  SLUICE_REQUIRE_DEVICE();
  for (const DeviceOp& op : AllDeviceOps(sizes)) {
    if (!IsFastOp(op)) continue;
    SCOPED_TRACE(op.name);
    const auto want = ResultsOn(MakeBackends, op, 1);
    const auto forward =
        ResultsOn(DeviceBackends(Turns::kForward, Numerics::kFast), op, 2);
    EXPECT_LT(ErrorOf(forward, want), kMostFastError);
    EXPECT_TRUE(kernels::SameBits(
        ResultsOn(DeviceBackends(Turns::kBackward, Numerics::kFast), op, 1),
        forward));
    // Embedded rows are the table's elements, exactly, but for zeros' signs.
    EXPECT_EQ(forward == want, op.name.starts_with("embed"));
  }
}

void ExpectTheCpusBits(const OpSizes& sizes) {
  SLUICE_REQUIRE_DEVICE();
  for (const DeviceOp& op : AllDeviceOps(sizes)) {
    SCOPED_TRACE(op.name);
    EXPECT_GT(op.bytes, 0);
    const auto want = ResultsOn(MakeBackends, op, 1);
    EXPECT_FALSE(want.empty());
    EXPECT_TRUE(kernels::SameBits(
        ResultsOn(DeviceBackends(Turns::kForward), op, 2), want));
    EXPECT_TRUE(kernels::SameBits(
        ResultsOn(DeviceBackends(Turns::kBackward), op, 1), want));
  }
}

TEST(DeviceOpsTest, OneTokenBehindAContext) {
  OpSizes sizes;
  sizes.context = 270;
  ExpectTheCpusBits(sizes);
}

TEST(DeviceOpsTest, SeveralTokensOfAPrompt) {
  OpSizes sizes;
  sizes.tokens = 11;
  sizes.context = 10;
  sizes.head_dim = 64;
  sizes.experts = 5;
  sizes.per_token = 3;
  ExpectTheCpusBits(sizes);
}

TEST(DeviceOpsTest, FastNumericsOfOneToken) {
  OpSizes sizes;
  sizes.context = 270;
  ExpectFastOps(sizes);
}

TEST(DeviceOpsTest, FastNumericsOfAPrompt) {
  OpSizes sizes;
  sizes.tokens = 11;
  sizes.context = 10;
  sizes.head_dim = 64;
  sizes.experts = 2;
  ExpectFastOps(sizes);
}

}  // namespace
}  // namespace sluice::testing
