// KV blocks that hold nothing: their memory goes, that of others stays as it
// is.
#include "common/device/kv_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "common/device/make_backends.h"

namespace sluice {
namespace {

constexpr int64_t kBlocks = 600;

// Two layers of a group, and one of another that shares memory with the first.
class KvCacheTest : public ::testing::Test {
 protected:
  KvCacheTest()
      : backend_(std::move((*MakeBackends({.threads = 1}))[0])),
        kv_(*backend_,
            std::vector<KvCache::Layer>{{0, 3, 64}, {0, 3, 64}, {1, 3, 64}},
            kBlocks) {}

  size_t block_bytes() const {
    return KvCache::Layer{0, 3, 64}.block_bytes(backend_->info().kv_type) / 2;
  }
  // Those of the first group, which the other one shares.
  std::vector<std::byte*> Slabs() const {
    std::vector<std::byte*> slabs;
    for (int32_t layer = 0; layer < 2; ++layer) {
      for (void* data : {kv_.layer(layer).keys, kv_.layer(layer).values}) {
        slabs.push_back(static_cast<std::byte*>(data));
      }
    }
    return slabs;
  }
  // Bytes of a slab that are in memory.
  size_t Resident(const std::byte* slab) const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<uintptr_t>(slab) / page * page;
    const size_t bytes = block_bytes() * kBlocks;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(at), bytes, pages.data()), 0);
    return page * static_cast<size_t>(std::count_if(
                      pages.begin(), pages.end(),
                      [](unsigned char flags) { return (flags & 1) != 0; }));
  }

  // Whether each byte of the blocks [begin, end) has the value.
  bool Has(const std::byte* slab, int64_t begin, int64_t end, int value) const {
    const auto size = static_cast<int64_t>(block_bytes());
    return std::all_of(slab + begin * size, slab + end * size,
                       [value](std::byte byte) {
                         return std::to_integer<int>(byte) == value;
                       });
  }

  const std::unique_ptr<Backend> backend_;
  KvCache kv_;
};

TEST_F(KvCacheTest, BlocksThatHoldNothingTakeNoMemoryAndOthersStay) {
  const size_t bytes = block_bytes() * kBlocks;
  for (std::byte* slab : Slabs()) std::memset(slab, 7, bytes);
  constexpr BlockRange kVacant = {3, 597};
  kv_.GiveBack(*backend_, kVacant);
  for (std::byte* slab : Slabs()) {
    EXPECT_LT(Resident(slab), bytes / 20);
    EXPECT_TRUE(Has(slab, 0, kVacant.begin, 7));
    EXPECT_TRUE(Has(slab, kVacant.end, kBlocks, 7));
    // They are there again when they are written.
    std::memset(slab, 9, bytes);
    EXPECT_EQ(slab[bytes / 2], std::byte{9});
  }
  kv_.GiveBack(*backend_, {0, 1});
  for (std::byte* slab : Slabs()) {
    EXPECT_TRUE(Has(slab, 1, kBlocks, 9));
  }
}

TEST_F(KvCacheTest, ABlockGoesToTheHostAndBackAndNoOtherChanges) {
  for (std::byte* slab : Slabs()) {
    std::memset(slab, 7, block_bytes() * kBlocks);
  }
  const size_t bytes = kv_.BlockBytes(1);
  ASSERT_EQ(bytes, 2 * block_bytes());
  EXPECT_EQ(kv_.StateBytes(1), 0u);
  std::vector<std::byte> keys_and_values(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    keys_and_values[i] = static_cast<std::byte>(i % 251);
  }
  kv_.WriteBlock(*backend_, 1, BlockId(5), keys_and_values.data());
  const std::vector<std::byte*> slabs = Slabs();
  for (size_t i = 0; i < slabs.size(); ++i) {
    EXPECT_TRUE(Has(slabs[i], 0, 5, 7)) << i;
    EXPECT_EQ(Has(slabs[i], 5, 6, 7), i < 2) << i;
    EXPECT_TRUE(Has(slabs[i], 6, kBlocks, 7)) << i;
  }
  std::vector<std::byte> back(bytes);
  kv_.ReadBlock(*backend_, 1, BlockId(5), back.data());
  EXPECT_EQ(back, keys_and_values);
}

TEST_F(KvCacheTest, AStateGoesToTheHostAndBack) {
  KvCache::Layer layer{1, 0, 64};
  layer.state_floats = 24;
  const std::vector<KvCache::Layer> layers = {{0, 3, 64}, layer};
  KvCache with_states(*backend_, layers, kBlocks, {4, 1});
  ASSERT_EQ(with_states.StateBytes(1), 24 * sizeof(float));
  EXPECT_EQ(with_states.StateBytes(0), 0u);
  EXPECT_EQ(with_states.BlockBytes(1), 0u);
  std::vector<float> state(24, 3.5F), back(24);
  with_states.WriteState(*backend_, 1, BlockId(2),
                         reinterpret_cast<const std::byte*>(state.data()));
  with_states.ReadState(*backend_, 1, BlockId(2),
                        reinterpret_cast<std::byte*>(back.data()));
  EXPECT_EQ(back, state);
}

}  // namespace
}  // namespace sluice
