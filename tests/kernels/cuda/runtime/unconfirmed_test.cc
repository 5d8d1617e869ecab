// The switch of what no GPU has confirmed, and what runs in the place of rows
// whose callers do not ask whether there is a kernel.
#include "kernels/cuda/runtime/unconfirmed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/canonical/attention.h"
#include "kernels/cuda/canonical/products.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(UnconfirmedTest, EveryRowSaysAllAndHasAPlaceAndANameOfItsOwn) {
  std::set<std::string> names = {"all"};
  int place = 0;
  for (const UnconfirmedRow& row : kUnconfirmed) {
    EXPECT_EQ(static_cast<int>(row.what), place++);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const char* const text : {row.does, row.instead, row.confirmed_by}) {
      EXPECT_NE(std::string(text), "") << row.name;
    }
  }
}

TEST(UnconfirmedTest, NamesAskForTheirRowsAlone) {
  UnconfirmedSet asked;
  EXPECT_EQ(AddUnconfirmed("", &asked), "");
  EXPECT_EQ(asked, UnconfirmedSet());
  EXPECT_EQ(AddUnconfirmed("norm_route,wgmma", &asked), "");
  UnconfirmedSet both;
  both.Add(Unconfirmed::kWgmma);
  both.Add(Unconfirmed::kNormRoute);
  EXPECT_EQ(asked, both);
  EXPECT_FALSE(asked.Has(Unconfirmed::kNcclGraphs));
  EXPECT_EQ(AddUnconfirmed("all", &asked), "");
  EXPECT_EQ(asked, UnconfirmedSet::All());
  for (const char* const wrong : {"norm-route", "wgmma,", "wgmma,,", ",",
                                  ",wgmma", "ALL", "wgmma, all"}) {
    EXPECT_THAT(AddUnconfirmed(wrong, &asked),
                HasSubstr("which is not one of all, wgmma, nccl_graphs"))
        << wrong;
  }
}

TEST(UnconfirmedTest, TheEnvironmentAsks) {
  for (const char* const name :
       {"SLUICE_UNCONFIRMED", "SLUICE_WGMMA", "SLUICE_NCCL_GRAPHS"}) {
    unsetenv(name);
  }
  EXPECT_EQ(ReadUnconfirmed().set, UnconfirmedSet());
  EXPECT_EQ(ReadUnconfirmed().error, "");
  EXPECT_EQ(AskedUnconfirmed().set, UnconfirmedSet());
  setenv("SLUICE_WGMMA", "1", 1);
  setenv("SLUICE_NCCL_GRAPHS", "yes", 1);
  setenv("SLUICE_UNCONFIRMED", "norm_route", 1);
  UnconfirmedSet asked;
  asked.Add(Unconfirmed::kWgmma);
  asked.Add(Unconfirmed::kNormRoute);
  EXPECT_EQ(ReadUnconfirmed().set, asked);
  EXPECT_EQ(AskedUnconfirmed().set, UnconfirmedSet()) << "read once";
  setenv("SLUICE_UNCONFIRMED", "fast", 1);
  EXPECT_THAT(ReadUnconfirmed().error,
              HasSubstr("SLUICE_UNCONFIRMED has the name \"fast\""));
  for (const char* const name :
       {"SLUICE_UNCONFIRMED", "SLUICE_WGMMA", "SLUICE_NCCL_GRAPHS"}) {
    unsetenv(name);
  }
}

// The kernels that `op` starts on a device with the rows of `asked`; runs them.
template <typename Op>
std::vector<const void*> KernelsOf(UnconfirmedSet asked, const Op& op) {
  Machine machine(Schedule::kForward);
  DeviceLimits limits = machine.limits();
  limits.asked = asked;
  machine.Limit(limits);
  LaunchSink sink = {&machine, {}};
  launch_sink = &sink;
  op(&machine);
  launch_sink = nullptr;
  op(&machine);
  EXPECT_THAT(machine.faults(), ::testing::IsEmpty());
  std::vector<const void*> kernels;
  for (const LaunchList::One& one : sink.list.launches()) {
    kernels.push_back(one.kernel);
  }
  return kernels;
}

UnconfirmedSet AllBut(Unconfirmed what) {
  UnconfirmedSet asked = UnconfirmedSet::All();
  asked.Remove(what);
  return asked;
}

TEST(UnconfirmedTest, HeadsOf64HaveTheSameBitsByTheKernelOfAnyHead) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kPages = 2;
  const OwnedMatrix q(3, kDim, RandomFloats(1, 3 * kDim));
  const OwnedMatrix keys(kPages * 16, kDim,
                         RandomFloats(2, kPages * 16 * kDim));
  const OwnedMatrix values(kPages * 16, kDim,
                           RandomFloats(3, kPages * 16 * kDim));
  const std::vector<int32_t> positions = {0, 15, 20};
  const std::vector<int64_t> offsets = {0, 0, 0};
  const int32_t tables[kPages] = {1, 0};
  const int32_t kv_heads[] = {0};
  OwnedMatrix keys_out = keys;
  OwnedMatrix values_out = values;
  const KvView kv = {keys_out.view().data,
                     values_out.view().data,
                     kPages,
                     1,
                     16,
                     kDim,
                     WeightType::kF32,
                     nullptr};
  std::vector<float> memory(AttentionFloats(3, 1, kDim, 1));
  const auto run = [&](UnconfirmedSet asked, OwnedMatrix& out) {
    return KernelsOf(asked, [&](Stream stream) {
      PagedAttention(stream,
                     {q.view(), positions.data(), tables, offsets.data(), 1,
                      kv_heads, 0.3f, 0, nullptr},
                     kv, {memory.data(), 1, 0}, out.view());
    });
  };
  OwnedMatrix own(3, kDim);
  OwnedMatrix any(3, kDim);
  const auto with = run(UnconfirmedSet::All(), own);
  const auto without = run(AllBut(Unconfirmed::kHeadAttention), any);
  EXPECT_EQ(with.size(), 1u);
  EXPECT_EQ(without.size(), 2u) << "chunks, and their joins";
  EXPECT_TRUE(SameBits(own.values(), any.values()));
}

TEST(UnconfirmedTest, ARoutersLogitsHaveTheSameBitsByTheKernelOfAnyProduct) {
  constexpr int64_t kCols = 64;
  const OwnedMatrix x(2, kCols, RandomFloats(1, 2 * kCols));
  const OwnedWeight w(WeightType::kF32, 8, kCols, RandomFloats(2, 8 * kCols));
  const auto run = [&](UnconfirmedSet asked, OwnedMatrix& y) {
    return KernelsOf(asked, [&](Stream stream) {
      MatMul(stream, x.view(), w.view(), nullptr, y.view());
    });
  };
  OwnedMatrix few(2, 8);
  OwnedMatrix any(2, 8);
  const auto with = run(UnconfirmedSet::All(), few);
  const auto without = run(AllBut(Unconfirmed::kRouterProduct), any);
  EXPECT_NE(with, without);
  EXPECT_TRUE(SameBits(few.values(), any.values()));
}

}  // namespace
}  // namespace sluice::kernels::cuda
