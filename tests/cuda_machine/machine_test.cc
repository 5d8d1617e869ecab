// The machine that stands for a GPU: kernels with one mistake each, which it
// must find, beside the same kernels without.
#include "tests/cuda_machine/machine.h"

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kTestThreads = 64;

// Runs fn(block) on two blocks; returns the first fault, empty if none.
template <typename F>
std::string FirstFault(Schedule schedule, const F& fn, size_t shared = 4096) {
  Machine machine(schedule);
  machine.Run(2, kTestThreads, shared, [&](int thread) {
    Block block(&machine, thread);
    fn(block);
  });
  return machine.faults().empty() ? "" : machine.faults()[0];
}

class MachineTest : public testing::TestWithParam<Schedule> {};

TEST_P(MachineTest, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(2 * kTestThreads);
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) {
                           ++runs[b.index() * b.threads() + b.thread()];
                           EXPECT_EQ(b.count(), 2);
                           EXPECT_EQ(b.warp() * 32 + b.lane(), b.thread());
                         }),
              IsEmpty());
  for (const int n : runs) EXPECT_EQ(n, 1);
}

TEST_P(MachineTest, ABarrierShowsWhatOtherThreadsWrote) {
  const auto neighbour = [](Block& b, bool barrier) {
    const auto shared = b.Allocate<float>(kTestThreads);
    shared.Set(b.thread(), static_cast<float>(b.thread()));
    if (barrier) b.Sync();
    const int other = (b.thread() + 1) % kTestThreads;
    const float value = shared.Get(other);
    if (barrier) {
      EXPECT_EQ(value, static_cast<float>(other));
    }
  };
  // Each block may have all of the launch's bytes.
  EXPECT_THAT(FirstFault(
                  GetParam(), [&](Block& b) { neighbour(b, true); },
                  kTestThreads * sizeof(float)),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { neighbour(b, false); }),
              HasSubstr("shared memory"));
}

TEST_P(MachineTest, AReadWithoutABarrierIsARaceInEitherOrder) {
  const auto race = [](Block& b) {
    const auto shared = b.Allocate<int>(1);
    if (b.thread() == 0) shared.Set(0, 1);
    b.Sync();
    if (b.thread() == 40) shared.Set(0, 2);
    if (b.thread() == 7) shared.Get(0);
  };
  EXPECT_THAT(FirstFault(GetParam(), race), HasSubstr("without a barrier"));
}

TEST_P(MachineTest, TwoWritersAreARace) {
  const auto race = [](Block& b) {
    const auto shared = b.Allocate<int>(4);
    if (b.thread() % 32 == 3) shared.Set(2, 1);
  };
  EXPECT_THAT(FirstFault(GetParam(), race),
              HasSubstr("writes without a barrier"));
}

TEST_P(MachineTest, AWarpsBarrierOrdersItsLanesAndNoOthers) {
  const auto pass = [](Block& b, int distance) {
    const auto shared = b.Allocate<int>(kTestThreads);
    shared.Set(b.thread(), b.thread());
    b.Sync();
    shared.Set(b.thread(), b.thread() + 1);
    b.SyncWarp();
    shared.Get((b.thread() + distance) % kTestThreads);
  };
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) { pass(b, b.lane() == 31 ? -31 : 1); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { pass(b, 32); }),
              HasSubstr("without a barrier"));
}

TEST_P(MachineTest, AnExchangeOrdersNothingInMemory) {
  const auto pass = [](Block& b, bool barrier) {
    const auto shared = b.Allocate<int>(kTestThreads);
    shared.Set(b.thread(), b.thread());
    b.Sync();
    shared.Set(b.thread(), b.thread() + 1);
    b.Shuffle(0, 1);
    b.Ballot(true);
    TileC c = {};
    b.MultiplyTile({}, {}, c);
    if (barrier) b.SyncWarp();
    shared.Get(b.thread() ^ 1);
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { pass(b, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { pass(b, false); }),
              HasSubstr("without a barrier"));
}

TEST_P(MachineTest, ALaneMayChangeWhatOthersReadBeforeTheWarpsBarrier) {
  const auto change = [](Block& b, bool barrier) {
    const auto shared = b.Allocate<int>(1);
    if (b.thread() == 0) shared.Set(0, 1);
    b.Sync();
    if (b.warp() != 0) return;
    shared.Get(0);
    if (barrier) b.SyncWarp();
    if (b.lane() == 3) shared.Set(0, shared.Get(0) + 1);
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { change(b, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { change(b, false); }),
              HasSubstr("without a barrier"));
}

TEST_P(MachineTest, ACopyBeginsOverWhatOthersMayStillRead) {
  alignas(16) static constexpr uint32_t kWords[4] = {1, 2, 3, 4};
  const auto copy = [](Block& b, bool barrier) {
    const auto shared = b.Allocate<uint32_t>(4);
    if (b.thread() == 0) {
      for (int i = 0; i < 4; ++i) shared.Set(i, 0);
    }
    b.Sync();
    shared.Get(b.thread() % 4);
    if (barrier) b.Sync();
    if (b.thread() == 1) b.CopyAsync(shared, 0, kWords);
    b.WaitCopies();
    b.Sync();
    EXPECT_EQ(shared.Get(3), 4u);
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, false); }),
              HasSubstr("without a barrier"));
}

TEST_P(MachineTest, NothingIsThereWhileACopyRuns) {
  alignas(16) static constexpr uint32_t kWords[4] = {1, 2, 3, 4};
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) {
                           const auto shared = b.Allocate<uint32_t>(4);
                           if (b.thread() == 0) shared.Set(0, 0);
                           if (b.thread() == 0) b.CopyAsync(shared, 0, kWords);
                           if (b.thread() == 0) shared.Get(0);
                           b.WaitCopies();
                         }),
              HasSubstr("not written"));
}

TEST_P(MachineTest, NobodyWritesWhereACopyIsToArrive) {
  alignas(16) static constexpr uint32_t kWords[4] = {1, 2, 3, 4};
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) {
                           const auto shared = b.Allocate<uint32_t>(4);
                           if (b.thread() == 0) b.CopyAsync(shared, 0, kWords);
                           b.Sync();
                           if (b.thread() == 9) shared.Set(2, 7);
                           b.Sync();
                           b.WaitCopies();
                         }),
              HasSubstr("a copy is to bring"));
}

TEST(CheckAlignedTest, WhatIsNotAlignedIsNotLoaded) {
  alignas(16) static constexpr float kFloats[8] = {};
  EXPECT_EQ(LoadQuad(kFloats + 4).values[0], 0.0f);
  EXPECT_DEATH(LoadQuad(kFloats + 1), "check failed");
  EXPECT_DEATH(LoadHalfTile(kFloats + 1), "check failed");
  EXPECT_EQ(CheckAligned<float>(8, 16), 8);
  EXPECT_DEATH(CheckAligned<float>(6, 16), "check failed");
}

TEST_P(MachineTest, SharedMemoryIsBoundedAndNotZero) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) { b.Allocate<float>(8).Set(8, 1.0f); }),
              HasSubstr("leaves a shared array of 8: index 8"));
  EXPECT_THAT(
      FirstFault(GetParam(), [](Block& b) { b.Allocate<float>(8).Get(-1); }),
      HasSubstr("leaves a shared array"));
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           EXPECT_NE(b.Allocate<float>(8).Get(0), 0.0f);
                         }),
              HasSubstr("not written"));
  EXPECT_THAT(FirstFault(
                  GetParam(), [](Block& b) { b.Allocate<float>(5); }, 16),
              HasSubstr("more shared memory than the launch has"));
}

TEST_P(MachineTest, ABarrierThatSomeThreadsMissIsFound) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           if (b.thread() != 9) b.Sync();
                         }),
              HasSubstr("thread 9 is not at the barrier"));
  // On a GPU a barrier that is two in the source may be two.
  const auto two = [](Block& b) {
    if (b.warp() == 0) {
      b.Sync();
    } else {
      b.Sync();
    }
  };
  EXPECT_THAT(FirstFault(GetParam(), two), HasSubstr("is not at the barrier"));
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           if (b.lane() < 16) b.ShuffleXor(1, 8);
                         }),
              HasSubstr("is not at the barrier"));
}

TEST_P(MachineTest, ShufflesHandValuesFromLaneToLane) {
  const auto shuffle = [](Block& b) {
    EXPECT_EQ(b.ShuffleXor(b.thread(), 5), b.thread() ^ 5);
    EXPECT_EQ(b.Shuffle(1.5 * b.thread(), 3), 1.5 * (b.warp() * 32 + 3));
    int sum = b.lane();
    for (int m = 16; m > 0; m /= 2) sum += b.ShuffleXor(sum, m);
    EXPECT_EQ(sum, 31 * 32 / 2);
  };
  EXPECT_THAT(FirstFault(GetParam(), shuffle), IsEmpty());
}

TEST_P(MachineTest, VotesAreBitsByLane) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) {
                           const uint32_t votes = b.Ballot(b.lane() % 3 == 0);
                           EXPECT_EQ(votes, 0x49249249u);
                           EXPECT_EQ(CountBits(votes), 11);
                         }),
              IsEmpty());
}

TEST_P(MachineTest, TheLastBlockToArriveIsOne) {
  uint32_t arrived = 0;
  int last = 0;
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) {
                           if (b.warp() > 0) return;
                           if (b.ArriveLast(&arrived, 2)) ++last;
                         }),
              IsEmpty());
  EXPECT_EQ(last, kWarpLanes);
  EXPECT_EQ(arrived, 0u);
}

TEST_P(MachineTest, TheLargestAndTheSmallestWordOfAWarp) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           const uint32_t own =
                               0xFFFFFFF0u * (b.lane() % 2) +
                               static_cast<uint32_t>(b.thread() / 2 % 9 + 3);
                           EXPECT_EQ(b.Most(own), 0xFFFFFFFBu);
                           EXPECT_EQ(b.Least(own), 3u);
                         }),
              IsEmpty());
}

TEST_P(MachineTest, AdditionsOfSeveralThreadsNeedABarrierAroundThemAlone) {
  const auto count = [](Block& b, bool before, bool behind) {
    const auto shared = b.Allocate<int64_t>(2);
    if (b.thread() < 2) shared.Set(b.thread(), 5);
    if (before) b.Sync();
    shared.Add(b.thread() % 2, int64_t{1} << 40);
    if (behind) b.Sync();
    const int64_t sum = shared.Get(0);
    if (before && behind) {
      EXPECT_EQ(sum, 5 + (int64_t{kTestThreads / 2} << 40));
    }
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { count(b, true, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { count(b, true, false); }),
              HasSubstr("without a barrier"));
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { count(b, false, true); }),
              HasSubstr("adds "));
}

TEST_P(MachineTest, AnAdditionToWhatNobodyWroteIsFound) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [&](Block& b) { b.Allocate<int32_t>(1).Add(0, 1); }),
              HasSubstr("adds to shared memory that is not written"));
}

TEST_P(MachineTest, WorkIsLateOnceItIsToBe) {
  Machine machine(GetParam());
  std::string done;
  machine.Enqueue([&] { done += 'a'; });
  EXPECT_EQ(done, "a");
  machine.RunLater();
  machine.Enqueue([&] { done += 'b'; });
  machine.Enqueue([&] { done += 'c'; });
  EXPECT_EQ(done, "a");
  machine.RunEnqueued();
  EXPECT_EQ(done, "abc");
}

TEST_P(MachineTest, AsynchronousCopiesArriveWhenTheyAreWaitedFor) {
  alignas(16) const float from[4] = {1, 2, 3, 4};
  const auto copy = [&](Block& b, bool wait) {
    const auto shared = b.Kept(b.Allocate<float>(4));
    if (b.thread() == 0) b.CopyAsync(shared, 0, from);
    if (wait) b.WaitCopies();
    b.Sync();
    const float value = shared.Get(b.thread() % 4);
    if (wait) {
      EXPECT_EQ(value, from[b.thread() % 4]);
    }
    b.Sync();
    b.WaitCopies();
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, false); }),
              HasSubstr("not written"));
}

TEST_P(MachineTest, GroupsOfCopiesArriveInTheirOrder) {
  alignas(16) const uint32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto copy = [&](Block& b, bool wait) {
    const auto shared = b.Allocate<uint32_t>(8);
    if (b.thread() == 0) b.CopyAsync(shared, 0, from);
    b.CommitCopies();
    if (b.thread() == 0) b.CopyAsync(shared, 4, from + 4);
    b.CommitCopies();
    b.CommitCopies();
    b.WaitCopies<2>();
    b.WaitCopies<2>();
    b.Sync();
    const TileA first = LoadTile(shared, 0);
    EXPECT_EQ(first.words[0], 1u);
    EXPECT_EQ(first.words[3], 4u);
    b.Sync();
    if (wait) b.WaitCopies<1>();
    b.Sync();
    const TileB second = LoadHalfTile(shared, 6);
    if (wait) {
      EXPECT_EQ(second.words[0], 7u);
      EXPECT_EQ(second.words[1], 8u);
    }
    b.Sync();
    b.WaitCopies();
  };
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, true); }),
              IsEmpty());
  EXPECT_THAT(FirstFault(GetParam(), [&](Block& b) { copy(b, false); }),
              HasSubstr("not written"));
}

TEST_P(MachineTest, QuadsOfSharedMemory) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           const auto shared = b.Allocate<float>(8);
                           const int at = b.thread() % 2 * 4;
                           if (b.thread() < 2)
                             StoreQuad(shared, at, {{4, 5, 6, 7}});
                           b.Sync();
                           const Quad quad = LoadQuad(shared, 4);
                           EXPECT_EQ(quad.values[0], 4.0f);
                           EXPECT_EQ(quad.values[3], 7.0f);
                         }),
              IsEmpty());
}

TEST_P(MachineTest, LimitsAreThoseThatItWasGiven) {
  Machine machine(GetParam());
  EXPECT_GT(LimitsOf(&machine).shared_bytes, kPlainSharedBytes);
  EXPECT_TRUE(LimitsOf(&machine).group_products);
  machine.Limit({100, 7});
  EXPECT_EQ(LimitsOf(&machine).shared_bytes, 100u);
  EXPECT_EQ(LimitsOf(&machine).multiprocessors, 7);
  EXPECT_FALSE(LimitsOf(&machine).group_products);
}

TEST_P(MachineTest, WhatIsComputedHereIsTheSame) {
  const int value = 3;
  EXPECT_EQ(ComputedHere(&value), &value);
  EXPECT_EQ(ComputedHere(-7), -7);
}

// The fragments of mma.m16n8k16 as the PTX ISA lists them, element by element.
TEST_P(MachineTest, TileProductsHaveThePtxIsasFragments) {
  const auto a_at = [](int row, int k) { return row * 3 - k * k % 11; };
  const auto b_at = [](int k, int column) { return k - 2 * column + 5; };
  const auto bits = [](int value) {
    return BitCast<uint32_t>(static_cast<float>(value)) >> 16;
  };
  std::vector<float> got(16 * 8, -1.0f);
  const auto multiply = [&](Block& b) {
    const int group = b.lane() >> 2;
    const int in_group = b.lane() % 4;
    TileA a = {};
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const int k = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      a.words[i / 2] |= bits(a_at(row, k)) << (i % 2 * 16);
    }
    TileB own = {};
    for (int i = 0; i < 4; ++i) {
      const int k = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
      own.words[i / 2] |= bits(b_at(k, group)) << (i % 2 * 16);
    }
    TileC c = {{100, 200, 300, 400}};
    b.MultiplyTile(a, own, c);
    const TileC onto_zeros = b.TileProduct(a, own);
    if (b.warp() != 0) return;
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? group : group + 8;
      const int column = in_group * 2 + (i & 1);
      got[row * 8 + column] = c.values[i] - static_cast<float>(100 * (i + 1));
      EXPECT_EQ(onto_zeros.values[i], got[row * 8 + column]);
    }
  };
  EXPECT_THAT(FirstFault(GetParam(), multiply), IsEmpty());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int want = 0;
      for (int k = 0; k < 16; ++k) want += a_at(row, k) * b_at(k, column);
      EXPECT_EQ(got[row * 8 + column], static_cast<float>(want))
          << row << ", " << column;
    }
  }
}

// The same of mma.m16n8k32 of unsigned and signed bytes.
TEST_P(MachineTest, CodeProductsHaveThePtxIsasFragments) {
  const auto a_at = [](int row, int k) { return (row * 37 + k * k) % 256; };
  const auto b_at = [](int k, int column) {
    return (k * 29 + column * 50) % 256 - 128;
  };
  std::vector<int32_t> got(16 * 8, -1);
  const auto multiply = [&](Block& b) {
    const int group = b.lane() >> 2;
    const int in_group = b.lane() % 4;
    TileA a = {};
    for (int i = 0; i < 16; ++i) {
      const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
      const int k = in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0);
      a.words[i / 4] |= static_cast<uint32_t>(a_at(row, k)) << (i % 4 * 8);
    }
    TileB own = {};
    for (int i = 0; i < 8; ++i) {
      const int k = in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0);
      own.words[i / 4] |= static_cast<uint32_t>(b_at(k, group) & 255)
                          << (i % 4 * 8);
    }
    TileI c = {{100, 200, 300, 400}};
    b.MultiplyCodes(a, own, c);
    if (b.warp() != 0) return;
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? group : group + 8;
      got[row * 8 + in_group * 2 + (i & 1)] = c.values[i] - 100 * (i + 1);
    }
  };
  EXPECT_THAT(FirstFault(GetParam(), multiply), IsEmpty());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int want = 0;
      for (int k = 0; k < 32; ++k) want += a_at(row, k) * b_at(k, column);
      EXPECT_EQ(got[row * 8 + column], want) << row << ", " << column;
    }
  }
}

TEST_P(MachineTest, ALaneThatMissesATileProductIsFound) {
  EXPECT_THAT(FirstFault(GetParam(),
                         [](Block& b) {
                           TileC c = {};
                           if (b.lane() != 9) b.MultiplyTile({}, {}, c);
                         }),
              HasSubstr("barrier"));
}

INSTANTIATE_TEST_SUITE_P(, MachineTest,
                         testing::Values(Schedule::kForward,
                                         Schedule::kBackward));

// What no look at shared memory finds: threads that race in the device's.
TEST(MachineScheduleTest, TheTwoSchedulesDisagreeAboutARaceInDeviceMemory) {
  const auto last_writer = [](Schedule schedule) {
    int last = -1;
    FirstFault(schedule, [&](Block& b) {
      last = static_cast<int>(b.index()) * b.threads() + b.thread();
    });
    return last;
  };
  EXPECT_EQ(last_writer(Schedule::kForward), 2 * kTestThreads - 1);
  EXPECT_EQ(last_writer(Schedule::kBackward), 0);
}

TEST(DeviceTest, DotBytesTakesUnsignedAndSignedBytes) {
  EXPECT_EQ(DotBytes(5, 0xFF00FF01u, 0x80FF7F02u),
            5 + 1 * 2 + 255 * 127 + 0 - 255 * 128);
}

TEST(DeviceTest, PairsAreTheNearestBf16Numbers) {
  EXPECT_EQ(PackPair(1.0f, -2.0f), 0xC0003F80u);
  // Ties go to the even one; what is above the largest number is infinite.
  EXPECT_EQ(PackPair(BitCast<float>(0x3F808000u), BitCast<float>(0x3F818000u)),
            0x3F823F80u);
  EXPECT_EQ(PackPair(BitCast<float>(0x7F7FFFFFu), BitCast<float>(0x00000001u)),
            0x00007F80u);
  EXPECT_EQ(PackPair(BitCast<float>(0x7F800001u), 0.0f), 0x00007FFFu);
  EXPECT_EQ(MultiplyPairs(0x3FC0C040u, 0x40003F00u), 0x4040BFC0u);
  EXPECT_EQ(SubtractPairs(0x43814380u, 0x43004380u), 0x43020000u);
}

TEST(DeviceTest, WordsAndQuads) {
  EXPECT_EQ(LowerHalves(0x11112222u, 0x33334444u), 0x44442222u);
  EXPECT_EQ(UpperHalves(0x11112222u, 0x33334444u), 0x33331111u);
  EXPECT_EQ(PickBytes(0x33221100u, 0x77665544u, 0x7041u), 0x77004411u);
  EXPECT_EQ(LowerHalfAsFloat(0xC0003C01u), 0x1.004p0f);
  EXPECT_EQ(LowerHalfAsFloat(0x8001u), -0x1p-24f);
  EXPECT_EQ(LowerHalfAsFloat(0x7C00u), __builtin_inff());
  EXPECT_EQ(WithBits<0x00FF00FFu>(0x43004300u, 0x12345678u), 0x43344378u);
  EXPECT_EQ(Larger(-2.0f, 1.0f), 1.0f);
  EXPECT_EQ(Larger(__builtin_nanf(""), -1.0f), -1.0f);
  EXPECT_EQ(Larger(-1.0f, __builtin_nanf("")), -1.0f);
  EXPECT_EQ(PowerOf2(0.0f), 1.0f);
  EXPECT_EQ(PowerOf2(-3.0f), 0.125f);
  EXPECT_EQ(PowerOf2(-127.0f), 0.0f);
  EXPECT_EQ(PowerOf2(-__builtin_inff()), 0.0f);
  EXPECT_NE(PowerOf2(__builtin_nanf("")), PowerOf2(__builtin_nanf("")));
  alignas(16) float floats[4] = {};
  StoreQuad(floats, {{1.0f, 2.0f, 3.0f, 4.0f}});
  EXPECT_EQ(LoadQuad(floats).values[3], 4.0f);
  alignas(8) uint32_t words[2] = {};
  StoreHalfTile(words, {{5u, 6u}});
  EXPECT_EQ(LoadHalfTile(words).words[1], 6u);
}

}  // namespace
}  // namespace sluice::kernels::cuda
