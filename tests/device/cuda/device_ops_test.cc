// Every operation of the backend over device code against the CPU's, bit for
// bit. tests/gpu/run tries the same operations on a GPU.
#include "tests/device/cuda/device_ops.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/device/cuda/device_backends.h"

namespace sluice::testing {
namespace {

std::unique_ptr<Backend> MakeOne(const BackendFactory& factory,
                                 const DeviceOp& op) {
  BackendOptions options;
  options.threads = 1;
  options.kv_type = op.kv_type;
  auto backends = factory(options);
  EXPECT_TRUE(backends.ok()) << backends.status();
  return std::move((*backends)[0]);
}

OpResults ResultsOn(const BackendFactory& factory, const DeviceOp& op) {
  const auto backend = MakeOne(factory, op);
  return ResultsOf(*backend, *op.prepare(*backend));
}
// The same, and that a token's operation, whose launches become a graph,
// repeats itself; a prompt's are begun one by one.
OpResults RepeatedOn(const BackendFactory& factory, const DeviceOp& op,
                     const OpSizes& sizes) {
  const auto backend = MakeOne(factory, op);
  const auto prepared = op.prepare(*backend);
  OpResults results = ResultsOf(*backend, *prepared);
  EXPECT_TRUE(RepeatsItself(*backend, *prepared, results,
                            sizes.tokens == 1 || sizes.apart ? 3 : 1));
  return results;
}

// On matrix units: close to the CPU with the same weights in F32, and the same
// in either order of threads. Of operations whose names begin with `only`.
void ExpectFastOps(const OpSizes& sizes, const std::string& only = "") {
  SLUICE_REQUIRE_DEVICE();
  OpSizes widened = sizes;
  widened.widened = true;
  const std::vector<DeviceOp> ops = AllDeviceOps(sizes);
  const std::vector<DeviceOp> wide = AllDeviceOps(widened);
  for (size_t i = 0; i < ops.size(); ++i) {
    const DeviceOp& op = ops[i];
    if (!IsFastOp(op) || !op.name.starts_with(only)) continue;
    SCOPED_TRACE(op.name);
    const auto want = ResultsOn(MakeBackends, wide[i]);
    const auto forward =
        RepeatedOn(DeviceBackends(Turns::kForward, Numerics::kFast), op, sizes);
    EXPECT_LT(ErrorOf(forward, want), kMostFastError);
    EXPECT_TRUE(SameBits(
        ResultsOn(DeviceBackends(Turns::kBackward, Numerics::kFast), op),
        forward));
    // Embedded rows are the table's elements, exactly, but for zeros' signs; a
    // norm and its router may be the CPU's, too.
    if (op.name != "norm, router") {
      EXPECT_EQ(forward == want, op.name.starts_with("embed"));
    }
  }
}

void ExpectTheCpusBits(const OpSizes& sizes, const std::string& only = "") {
  SLUICE_REQUIRE_DEVICE();
  for (const DeviceOp& op : AllDeviceOps(sizes)) {
    if (!op.name.starts_with(only)) continue;
    SCOPED_TRACE(op.name);
    EXPECT_GT(op.bytes, 0);
    const auto want = ResultsOn(MakeBackends, op);
    EXPECT_FALSE(want.empty());
    EXPECT_TRUE(
        SameBits(RepeatedOn(DeviceBackends(Turns::kForward), op, sizes), want));
    EXPECT_TRUE(
        SameBits(ResultsOn(DeviceBackends(Turns::kBackward), op), want));
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

// A window as gpt-oss has, and as many query heads of a kv head.
TEST(DeviceOpsTest, AttentionOfSequencesApart) {
  OpSizes sizes;
  sizes.tokens = 4;
  sizes.context = 300;
  sizes.apart = true;
  sizes.heads = 8;
  sizes.kv_heads = 1;
  sizes.head_dim = 64;
  for (const int32_t window : {0, 128}) {
    sizes.window = window;
    ExpectTheCpusBits(sizes, "attention");
    ExpectFastOps(sizes, "attention");
  }
}

// Numbers below the normal ones are not flushed to zero.
TEST(DeviceOpsTest, SubnormalNumbers) {
  OpSizes sizes;
  sizes.tokens = 2;
  sizes.largest = kSubnormal;
  for (const char* only : {"linear", "row parallel", "norm"}) {
    ExpectTheCpusBits(sizes, only);
  }
}

TEST(DeviceOpsTest, FastNumericsOfOneToken) {
  OpSizes sizes;
  sizes.context = 270;
  ExpectFastOps(sizes);
}

// Heads are rotated, stored and attended to in one launch, a part of which runs
// before its rows are there.
TEST(DeviceOpsTest, FastAttentionOfOneToken) {
  OpSizes sizes;
  sizes.context = 270;
  sizes.heads = 8;
  sizes.head_dim = 128;
  ExpectFastOps(sizes, "attention");
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
