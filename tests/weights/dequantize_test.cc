#include "common/weights/dequantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::weights {
namespace {

constexpr uint8_t kOne[] = {0x00, 0x3c};   // 1.0 as F16
constexpr uint8_t kHalf[] = {0x00, 0x38};  // 0.5
constexpr uint8_t kTwo[] = {0x00, 0x40};   // 2.0

void Append(std::vector<uint8_t>& block, const uint8_t (&scale)[2]) {
  block.reserve(256);
  block.push_back(scale[0]);
  block.push_back(scale[1]);
}

std::vector<float> Dequantize(DType dtype, const std::vector<uint8_t>& block) {
  EXPECT_EQ(static_cast<int64_t>(block.size()), BlockSizeOf(dtype).bytes);
  std::vector<float> out(static_cast<size_t>(BlockSizeOf(dtype).elements));
  DequantizeToF32(dtype, block.data(), 1, out.data());
  return out;
}

TEST(DequantizeTest, F16IsExactAtItsEdges) {
  EXPECT_EQ(F16ToF32(0x0001), 0x1p-24f);
  EXPECT_EQ(F16ToF32(0x83ff), -0x3ffp-24f);
  EXPECT_EQ(F16ToF32(0x0400), 0x1p-14f);
  EXPECT_EQ(F16ToF32(0x7bff), 65504.0f);
  EXPECT_EQ(F16ToF32(0xbc00), -1.0f);
  EXPECT_EQ(F16ToF32(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F16ToF32(0x7e00)));
  EXPECT_TRUE(std::signbit(F16ToF32(0x8000)));
}

TEST(DequantizeTest, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(F32ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);  // inf
  // The NaN whose mantissa lies in the bits that are cut off.
  EXPECT_TRUE(
      std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DequantizeTest, Q80IsSignedBytesTimesScale) {
  std::vector<uint8_t> block;
  Append(block, kHalf);
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<uint8_t>(i - 16));
  const auto out = Dequantize(DType::kQ8_0, block);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.5f * (i - 16)) << i;
}

TEST(DequantizeTest, Q40HasLowNibblesFirstAndCentresAtEight) {
  std::vector<uint8_t> block;
  Append(block, kTwo);
  for (int i = 0; i < 16; ++i) {
    block.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
  }
  const auto out = Dequantize(DType::kQ4_0, block);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 2.0f * (i - 8)) << i;
    EXPECT_EQ(out[i + 16], 2.0f * (15 - i - 8)) << i;
  }
}

TEST(DequantizeTest, Q41AddsTheMinimum) {
  std::vector<uint8_t> block;
  Append(block, kTwo);
  Append(block, kHalf);
  for (int i = 0; i < 16; ++i) {
    block.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
  }
  const auto out = Dequantize(DType::kQ4_1, block);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 2.0f * i + 0.5f) << i;
    EXPECT_EQ(out[i + 16], 2.0f * (15 - i) + 0.5f) << i;
  }
}

TEST(DequantizeTest, Q50TakesTheFifthBitFromItsMask) {
  std::vector<uint8_t> block;
  Append(block, kOne);
  block.insert(block.end(), {0x01, 0x00, 0x01, 0x80});  // bits 0, 16 and 31
  for (int i = 0; i < 16; ++i) block.push_back(0x21);
  const auto out = Dequantize(DType::kQ5_0, block);
  for (int i = 0; i < 32; ++i) {
    const int high = i == 0 || i == 16 || i == 31 ? 16 : 0;
    EXPECT_EQ(out[i], (i < 16 ? 1 : 2) + high - 16) << i;
  }
}

TEST(DequantizeTest, Q51AddsTheMinimumToFiveBits) {
  std::vector<uint8_t> block;
  Append(block, kHalf);
  Append(block, kOne);
  block.insert(block.end(), {0x02, 0x00, 0x00, 0x40});  // bits 1 and 30
  for (int i = 0; i < 16; ++i) block.push_back(0x43);
  const auto out = Dequantize(DType::kQ5_1, block);
  for (int i = 0; i < 32; ++i) {
    const int high = i == 1 || i == 30 ? 16 : 0;
    EXPECT_EQ(out[i], 0.5f * ((i < 16 ? 3 : 4) + high) + 1.0f) << i;
  }
}

// Packed six-bit scales 1 to 8 and minima 33 to 40, by the format's layout:
// entries 4 to 7 have their upper two bits above those of entries 0 to 3.
std::vector<uint8_t> PackedScales() {
  std::vector<uint8_t> packed(12);
  for (int i = 0; i < 4; ++i) {
    const int scale = 1 + i, min = 33 + i;
    const int scale4 = 5 + i, min4 = 37 + i;
    packed[i] = static_cast<uint8_t>(scale | (scale4 >> 4) << 6);
    packed[i + 4] = static_cast<uint8_t>(min | (min4 >> 4) << 6);
    packed[i + 8] = static_cast<uint8_t>((scale4 & 15) | (min4 & 15) << 4);
  }
  return packed;
}

TEST(DequantizeTest, Q4KScalesEverySubBlockOfThirtyTwo) {
  std::vector<uint8_t> block;
  Append(block, kOne);
  Append(block, kHalf);
  const auto packed = PackedScales();
  block.insert(block.end(), packed.begin(), packed.end());
  block.insert(block.end(), 128, 0xa3);
  const auto out = Dequantize(DType::kQ4K, block);
  for (int i = 0; i < 256; ++i) {
    const int sub = i / 32;
    const int value = sub % 2 == 0 ? 3 : 10;
    EXPECT_EQ(out[i], (1 + sub) * value - 0.5f * (33 + sub)) << i;
  }
}

TEST(DequantizeTest, Q5KTakesOneHighBitPerSubBlock) {
  std::vector<uint8_t> block;
  Append(block, kOne);
  Append(block, kHalf);
  const auto packed = PackedScales();
  block.insert(block.end(), packed.begin(), packed.end());
  block.insert(block.end(), 32, 0x81);  // sub-blocks 0 and 7
  block.insert(block.end(), 128, 0xa3);
  const auto out = Dequantize(DType::kQ5K, block);
  for (int i = 0; i < 256; ++i) {
    const int sub = i / 32;
    const int high = sub == 0 || sub == 7 ? 16 : 0;
    const int value = (sub % 2 == 0 ? 3 : 10) + high;
    EXPECT_EQ(out[i], (1 + sub) * value - 0.5f * (33 + sub)) << i;
  }
}

TEST(DequantizeTest, Q6KScalesEverySixteenWithASignedByte) {
  std::vector<uint8_t> block(192, 0xe4);           // pairs 0, 1, 2, 3
  std::fill_n(block.begin(), 128, uint8_t{0x5c});  // nibbles 12 and 5
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<uint8_t>(i - 8));
  Append(block, kTwo);
  const auto out = Dequantize(DType::kQ6K, block);
  for (int i = 0; i < 256; ++i) {
    const int quarter = i % 128 / 32;
    const int value = (quarter < 2 ? 12 : 5) + 16 * quarter - 32;
    EXPECT_EQ(out[i], 2.0f * (i / 16 - 8) * value) << i;
  }
}

}  // namespace
}  // namespace sluice::weights
