#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"

namespace sluice::kernels {
namespace {

uint16_t BitsOfBf16(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}

TEST(StoreKvTest, RoundsToNearestEvenBf16) {
  const float inf = std::numeric_limits<float>::infinity();
  const struct {
    float x;
    float want;
  } cases[] = {{1.0f, 1.0f},
               {0x1.01p0f, 0x1.00p0f},  // half-way: to even
               {0x1.03p0f, 0x1.04p0f},
               {0x1.010002p0f, 0x1.02p0f},
               {-0x1.03p0f, -0x1.04p0f},
               {0x1.fffffep127f, inf},
               {-inf, -inf},
               {-0.0f, -0.0f},
               {0x1p-149f, 0.0f}};
  for (const auto& c : cases) {
    uint16_t key = 0;
    uint16_t value = 0;
    const int64_t slot = 0;
    const ConstMatrix row = {&c.x, 1, 1, 1};
    StoreKv(Context{}, row, row, &slot,
            {.keys = &key,
             .values = &value,
             .num_blocks = 1,
             .num_kv_heads = 1,
             .block_tokens = 1,
             .head_dim = 1,
             .type = WeightType::kBf16});
    EXPECT_EQ(key, BitsOfBf16(c.want)) << c.x;
    EXPECT_EQ(value, key);
  }
}

TEST(StoreKvTest, Q8RoundsHalfToEvenAndTakesTheStoredBytes) {
  float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -127.0f};
  std::vector<uint8_t> keys(16 * 34, 0xEE);
  std::vector<uint8_t> values(16 * 34, 0xEE);
  const int64_t slot = 3;
  const ConstMatrix row = {x, 1, 32, 32};
  StoreKv(Context{}, row, row, &slot,
          {.keys = keys.data(),
           .values = values.data(),
           .num_blocks = 1,
           .num_kv_heads = 1,
           .block_tokens = 16,
           .head_dim = 32,
           .type = WeightType::kQ8_0,
           .blocks = &BlockOpsFor(DotIsa::kPortable)});
  const int want[7] = {127, 0, 2, 2, 0, -2, -127};
  int written = 0;
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(keys[32 + i / 4 * 64 + 4 * 3 + i % 4], 128 + want[i]) << i;
    EXPECT_EQ(static_cast<int8_t>(values[3 * 32 + i]), want[i]) << i;
  }
  // A scale of 1 in F16, and nothing of other tokens.
  EXPECT_EQ(keys[6] | keys[7] << 8, 0x3C00);
  EXPECT_EQ(values[16 * 32 + 6] | values[16 * 32 + 7] << 8, 0x3C00);
  for (const uint8_t byte : keys) written += byte != 0xEE;
  for (const uint8_t byte : values) written += byte != 0xEE;
  EXPECT_EQ(written, 2 * 34);
}

}  // namespace
}  // namespace sluice::kernels
