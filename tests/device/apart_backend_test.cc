// The backend that the model's tests trust to notice a host that reads what
// is not its own, or too early.
#include "tests/device/apart_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace sluice::testing {
namespace {

std::unique_ptr<Backend> MakeOne() {
  return std::move((*MakeApartBackends({.threads = 1}))[0]);
}

StepInputs& NoTokens() {
  static auto* const kInputs = new StepInputs(StepLimits());
  return *kInputs;
}

TEST(ApartBackendDeathTest, AHostThatFollowsADeviceAddressDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto backend = MakeOne();
  const DeviceMemory memory = backend->Allocate(64);
  EXPECT_DEATH(static_cast<volatile float*>(memory.data())[0] = 1, "");
}

TEST(ApartBackendDeathTest, AViewThatLeavesItsAllocationIsNoticed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto backend = MakeOne();
  const DeviceMemory memory = backend->Allocate(4 * sizeof(float));
  std::vector<float> rows(5);
  EXPECT_DEATH(backend->CopyOut({memory.data(), 1, 5, 5}, rows.data()), "");
}

TEST(ApartBackendTest, OperationsRunInOrderAtTheStepsEndAndNotBefore) {
  const auto backend = MakeOne();
  const DeviceMemory memory = backend->Allocate(4 * sizeof(float));
  const DeviceMatrix x = {memory.data(), 2, 2, 2};
  std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> before(4), after(4);
  backend->CopyOut(x, before.data());
  EXPECT_TRUE(std::isnan(before[0]));  // nobody has written it
  backend->BeginStep(NoTokens());
  backend->CopyOut(x, before.data());
  backend->CopyIn(in.data(), x);
  backend->Add(x, nullptr, NormSpec(), x);
  backend->CopyOut(x, after.data());
  in = {5, 6, 7, 8};  // the copy is yet to come
  EXPECT_TRUE(std::isnan(after[0]));
  backend->Sync();
  EXPECT_EQ(after, (std::vector<float>{10, 12, 14, 16}));
  EXPECT_TRUE(std::isnan(before[0]));
  backend->CopyOut(x.Rows(1, 1), before.data());
  backend->EndStep();
  EXPECT_EQ(before[0], 14);
}

}  // namespace
}  // namespace sluice::testing
