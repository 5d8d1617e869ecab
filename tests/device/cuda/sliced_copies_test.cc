// Large copies in slices, over a stream that does nothing before it must.
#include "kernels/cuda/runtime/nvcc/sliced_copies.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kSlice = SlicedCopies::kSliceBytes;
constexpr size_t kSlices = 4;

std::vector<std::byte> BytesOf(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  }
  return bytes;
}

class SlicedCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override { slices_.Reserve(Memory(kSlices), kSlices * kSlice); }
  // Of so many slices for each owner.
  static std::shared_ptr<void> Memory(size_t slices) {
    auto memory = std::make_shared<std::vector<std::byte>>(
        SlicedCopies::kOwners * slices * kSlice);
    void* const data = memory->data();
    return {std::move(memory), data};
  }
  void TearDown() override { slices_.Clear(); }
  // The stream's end.
  void Sync() {
    while (stream_.done < stream_.work.size()) stream_.work[stream_.done++]();
  }

  FakeStream stream_;
  SlicedCopies slices_;
  int owner_ = 0;
  int other_ = 0;
  int third_ = 0;
};

TEST_F(SlicedCopiesTest, WhereMemoryIsShortOneOwnerHasIt) {
  slices_.Reserve(Memory(kSlices), kSlices * kSlice, /*owners=*/1);
  EXPECT_TRUE(slices_.Has(kSlices * kSlice, &owner_));
  EXPECT_FALSE(slices_.Has(1, &other_));
  slices_.Release(&other_);
  slices_.Release(&owner_);
  EXPECT_TRUE(slices_.Has(1, &other_));
}

TEST_F(SlicedCopiesTest, BytesComeAndGoAtEverySize) {
  for (const size_t size :
       {size_t{1}, kSlice - 1, kSlice, kSlice + 1, 2 * kSlice}) {
    std::vector<std::byte> from = BytesOf(size, 1);
    const std::vector<std::byte> want = from;
    std::vector<std::byte> device(size);
    std::vector<std::byte> to(size);
    ASSERT_TRUE(slices_.Has(size, &owner_));
    slices_.CopyIn(from.data(), device.data(), size, &stream_);
    // The caller's bytes are not needed any more.
    from.assign(size, std::byte{0xEE});
    ASSERT_TRUE(slices_.Has(size, &owner_));
    slices_.CopyOut(device.data(), to.data(), size, &stream_);
    slices_.HandOn(&owner_);
    EXPECT_EQ(device, want);
    EXPECT_EQ(to, want);
    slices_.Release(&owner_);
  }
}

TEST_F(SlicedCopiesTest, SlicesAreHandedOnAsTheyArrive) {
  std::vector<std::byte> device = BytesOf(3 * kSlice, 2);
  std::vector<std::byte> to(3 * kSlice);
  bool computed = false;
  stream_.work.push_back([&] { computed = true; });
  ASSERT_TRUE(slices_.Has(device.size(), &owner_));
  slices_.CopyOut(device.data(), to.data(), device.size(), &stream_);
  bool behind = false;
  stream_.work.push_back([&] { behind = true; });
  EXPECT_FALSE(computed);
  EXPECT_NE(to, device);
  slices_.HandOn(&other_);
  EXPECT_FALSE(computed);
  slices_.HandOn(&owner_);
  EXPECT_TRUE(computed);
  EXPECT_FALSE(behind);
  EXPECT_EQ(to, device);
  // Once: later bytes of the device are another step's.
  to.assign(to.size(), std::byte{0});
  slices_.HandOn(&owner_);
  EXPECT_EQ(to[0], std::byte{0});
}

TEST_F(SlicedCopiesTest, TwoOwnersHaveHalfEachUntilTheirEnds) {
  const std::vector<std::byte> from = BytesOf(kSlice, 3);
  std::vector<std::byte> device(kSlice);
  EXPECT_FALSE(slices_.Has(kSlices * kSlice + 1, &owner_));
  ASSERT_TRUE(slices_.Has(kSlice, &owner_));
  slices_.CopyIn(from.data(), device.data(), kSlice, &stream_);
  EXPECT_FALSE(slices_.Has(kSlices * kSlice + 1, &other_));
  EXPECT_TRUE(slices_.Has(kSlices * kSlice, &other_));
  EXPECT_FALSE(slices_.Has(1, &third_));
  EXPECT_TRUE(slices_.Has((kSlices - 1) * kSlice, &owner_));
  EXPECT_FALSE(slices_.Has((kSlices - 1) * kSlice + 1, &owner_));
  slices_.Release(&third_);
  EXPECT_FALSE(slices_.Has(1, &third_));
  Sync();
  slices_.Release(&owner_);
  EXPECT_TRUE(slices_.Has(kSlices * kSlice, &third_));
  EXPECT_FALSE(slices_.Has(1, &owner_));
}

// Each step brings rows, changes them and hands them on; the next one begins
// before the host has looked at what the one before left.
TEST_F(SlicedCopiesTest, StepsInFlightHaveSlicesOfTheirOwn) {
  constexpr size_t kBytes = 2 * kSlice - 5;
  constexpr int kSteps = 5;
  std::vector<std::byte> device(kBytes);
  std::vector<std::vector<std::byte>> rows;
  for (int step = 0; step < kSteps; ++step)
    rows.push_back(BytesOf(kBytes, step));
  int owners[3] = {};
  for (int step = 0; step <= kSteps; ++step) {
    if (step < kSteps) {
      int* const owner = &owners[step % 3];
      std::byte* const at = rows[static_cast<size_t>(step)].data();
      ASSERT_TRUE(slices_.Has(kBytes, owner)) << step;
      slices_.CopyIn(at, device.data(), kBytes, &stream_);
      stream_.work.push_back([&] {
        for (std::byte& byte : device) byte ^= std::byte{0x5A};
      });
      ASSERT_TRUE(slices_.Has(kBytes, owner)) << step;
      slices_.CopyOut(device.data(), at, kBytes, &stream_);
    }
    if (step == 0) continue;
    slices_.HandOn(&owners[(step - 1) % 3]);
    slices_.Release(&owners[(step - 1) % 3]);
    std::vector<std::byte> want = BytesOf(kBytes, step - 1);
    for (std::byte& byte : want) byte ^= std::byte{0x5A};
    EXPECT_EQ(rows[static_cast<size_t>(step - 1)], want) << step;
  }
}

TEST_F(SlicedCopiesTest, MemoryGivenAnewIsFree) {
  ASSERT_TRUE(slices_.Has(kSlices * kSlice, &owner_));
  slices_.Reserve(Memory(1), kSlice);
  EXPECT_TRUE(slices_.Has(kSlice, &other_));
  EXPECT_FALSE(slices_.Has(kSlice + 1, &other_));
}

TEST_F(SlicedCopiesTest, TwoCopiesOfAPartOfASliceEachFit) {
  // What is set aside is whole slices of each copy.
  const size_t bytes = kSlice + kSlice / 2;
  ASSERT_EQ(2 * SlicedCopies::Whole(bytes), kSlices * kSlice);
  const std::vector<std::byte> from = BytesOf(bytes, 4);
  std::vector<std::byte> device(bytes);
  ASSERT_TRUE(slices_.Has(bytes, &owner_));
  slices_.CopyIn(from.data(), device.data(), bytes, &stream_);
  EXPECT_TRUE(slices_.Has(bytes, &owner_));
  EXPECT_FALSE(slices_.Has(2 * bytes, &owner_));
}

TEST(NoSlicedCopiesTest, WithoutMemoryThereAreNoSlices) {
  SlicedCopies slices;
  int owner = 0;
  EXPECT_FALSE(slices.Has(1, &owner));
  slices.Reserve(nullptr, SlicedCopies::kSliceBytes);
  EXPECT_FALSE(slices.Has(1, &owner));
  slices.HandOn(&owner);
  slices.Release(&owner);
}

}  // namespace
}  // namespace sluice::kernels::cuda
