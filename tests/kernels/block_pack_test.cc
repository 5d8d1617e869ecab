// Packed weights: nothing is lost, and elements are those of the formats.
#include "kernels/block_pack.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/block_store.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

class BlockPackTest : public testing::TestWithParam<BlockFormat> {};

TEST_P(BlockPackTest, PackedRowsGiveTheStoredBytesBack) {
  const BlockFormat format = GetParam();
  const int64_t cols = 3 * BlockElements(format);
  const int64_t rows = 35;
  const auto stored = RandomBlockRows(format, 41, rows, cols);
  const int64_t bytes = StoredRowBytes(format, cols);
  ASSERT_EQ(bytes, 3 * BlockBytes(format));
  ASSERT_EQ(PackedBytes(format, rows, cols), 48 * bytes);
  std::vector<uint8_t> packed(static_cast<size_t>(48 * bytes), 0xAA);
  PackRows({format, stored.data(), rows, cols, bytes}, packed.data());
  std::vector<uint8_t> row(static_cast<size_t>(bytes));
  for (int64_t r = 0; r < rows; ++r) {
    UnpackRow({format, packed.data(), rows, cols}, r, row.data());
    EXPECT_EQ(std::memcmp(row.data(), stored.data() + r * bytes, row.size()), 0)
        << "row " << r;
  }
}

TEST_P(BlockPackTest, PiecesOfRowsAndOfColumnsArePackedAlike) {
  const BlockFormat format = GetParam();
  const int64_t elements = BlockElements(format);
  const int64_t cols = 4 * elements;
  const int64_t rows = 35;
  const auto stored = RandomBlockRows(format, 42, rows, cols);
  const int64_t bytes = StoredRowBytes(format, cols);
  std::vector<uint8_t> whole(
      static_cast<size_t>(PackedBytes(format, rows, cols)));
  PackRows({format, stored.data(), rows, cols, bytes}, whole.data());
  auto pieces = std::vector<uint8_t>(whole.size(), 0x55);
  PackRows({format, stored.data(), 32, cols, bytes}, pieces.data());
  PackRows({format, stored.data() + 32 * bytes, 3, cols, bytes},
           pieces.data() + PackedBytes(format, 32, cols));
  EXPECT_EQ(pieces, whole);
  // Columns of the second and the third block.
  std::vector<uint8_t> middle(
      static_cast<size_t>(PackedBytes(format, rows, 2 * elements)));
  PackRows(
      {format, stored.data() + BlockBytes(format), rows, 2 * elements, bytes},
      middle.data());
  std::vector<uint8_t> row(static_cast<size_t>(2 * BlockBytes(format)));
  for (int64_t r = 0; r < rows; ++r) {
    UnpackRow({format, middle.data(), rows, 2 * elements}, r, row.data());
    EXPECT_EQ(
        std::memcmp(row.data(), stored.data() + r * bytes + BlockBytes(format),
                    row.size()),
        0);
  }
}

// A value is the product of a scale, an integer scale and a code, and a
// minimum: three roundings at most.
TEST_P(BlockPackTest, WidenedElementsAreThoseOfTheFormat) {
  const BlockFormat format = GetParam();
  const int64_t cols = 3 * BlockElements(format);
  const int64_t rows = 17;
  const auto stored = RandomBlockRows(format, 43, rows, cols);
  const int64_t bytes = StoredRowBytes(format, cols);
  std::vector<uint8_t> packed(
      static_cast<size_t>(PackedBytes(format, rows, cols)));
  PackRows({format, stored.data(), rows, cols, bytes}, packed.data());
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = stored.data() + r * bytes;
    std::vector<float> got(static_cast<size_t>(cols));
    WidenRow({format, packed.data(), rows, cols}, r, got.data());
    std::vector<float> direct(got.size());
    WidenBlocks(format, row, 3, direct.data());
    EXPECT_TRUE(SameBits(got, direct));
    const auto want = BlockValues(format, row, cols);
    for (int64_t k = 0; k < cols; ++k) {
      const auto i = static_cast<size_t>(k);
      const BlockNumbers n = ReadBlock(
          format, row + k / BlockElements(format) * BlockBytes(format));
      const int64_t in = k % BlockElements(format);
      const double size =
          std::abs(double{n.scale} * n.sub_scale[in / 16] * n.code[in]) +
          std::abs(double{n.minimum} * n.sub_minimum[in / 16]);
      ASSERT_NEAR(got[i], want[i], Gamma(3) * size + 0x1p-149)
          << "row " << r << " column " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockPackTest,
                         testing::ValuesIn(AllBlockFormats()),
                         [](const auto& tested) {
                           return NameOf(tested.param);
                         });

TEST(StoreMxfp4GroupTest, PairsOfNeighboursBecomeHalves) {
  std::vector<uint8_t> codes;
  for (int j = 0; j < 16; ++j) {
    codes.push_back(static_cast<uint8_t>((2 * j) % 16 | (2 * j + 1) % 16 << 4));
  }
  uint8_t block[17];
  StoreMxfp4Group(codes.data(), 130, block);
  const BlockNumbers n = ReadBlock(BlockFormat::kMxfp4, block);
  EXPECT_EQ(n.scale, 4.0f);
  const int values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                          0, -1, -2, -3, -4, -6, -8, -12};
  for (int k = 0; k < 32; ++k) EXPECT_EQ(n.code[k], values[k % 16]) << k;
}

TEST(StoreMxfp4GroupTest, EveryCodeHasItsPlace) {
  uint8_t codes[16];
  for (int j = 0; j < 16; ++j) codes[j] = static_cast<uint8_t>(j * 83 + 29);
  uint8_t block[17];
  StoreMxfp4Group(codes, 7, block);
  EXPECT_EQ(block[0], 7);
  const auto code = [&](int k) { return codes[k / 2] >> (k % 2 * 4) & 15; };
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(block[1 + j], code(j) | code(j + 16) << 4) << j;
  }
}

TEST(WidenBlocksTest, EveryScaleOfMxfp4IsExact) {
  uint8_t block[17] = {};
  block[1] = 0x91;  // elements 0 and 16: a half of 1 and of -1
  for (int e = 0; e < 256; ++e) {
    block[0] = static_cast<uint8_t>(e);
    float values[32];
    WidenBlocks(BlockFormat::kMxfp4, block, 1, values);
    EXPECT_EQ(double{values[0]}, std::ldexp(1.0, e - 128)) << e;
    EXPECT_EQ(double{values[16]}, std::ldexp(-1.0, e - 128)) << e;
  }
}

// A damaged element must not vanish: its block is no number either.
TEST(StoreBlocksTest, AnElementThatIsNoNumberMakesItsBlockNone) {
  for (const BlockFormat format : AllBlockFormats()) {
    if (!CanStore(format)) continue;
    for (const int damaged : {0, 13, 31}) {
      std::vector<float> x(64, 0.5f);
      x[1] = -2.0f;
      x[static_cast<size_t>(damaged)] = std::nanf("");
      std::vector<uint8_t> stored(static_cast<size_t>(2 * BlockBytes(format)));
      StoreBlocks(format, x.data(), 2, stored.data());
      std::vector<float> back(64);
      WidenBlocks(format, stored.data(), 2, back.data());
      for (size_t k = 0; k < 64; ++k) {
        EXPECT_EQ(std::isnan(back[k]), k < 32) << NameOf(format) << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
