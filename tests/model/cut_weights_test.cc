// Parts of a packed weight are the bytes of the same rows, packed alone.
#include "common/model/cut_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/device/make_backends.h"
#include "common/tensor/weight_format.h"
#include "kernels/block_pack.h"

namespace sluice {
namespace {

constexpr int64_t kCols = 1024;

class CutWeightTest : public ::testing::TestWithParam<int> {
 protected:
  kernels::WeightType type() const {
    return static_cast<kernels::WeightType>(GetParam());
  }
  const WeightFormat& format() const { return FormatOf(type()); }

  // Rows of bytes that no two rows share.
  HostWeight Random(int64_t rows) {
    HostWeight weight(type(), rows, kCols);
    for (size_t i = 0; i < weight.data.size(); ++i) {
      weight.data.as<uint8_t>()[i] = static_cast<uint8_t>(random_());
    }
    return weight;
  }
  std::unique_ptr<Weight> Pack(const std::vector<HostWeight>& parts) {
    std::vector<HostWeight> copies;
    for (const HostWeight& part : parts) {
      HostWeight& copy = copies.emplace_back(part.type, part.rows, part.cols);
      std::memcpy(copy.data.data(), part.data.data(), part.data.size());
    }
    return backend_->Pack(std::move(copies));
  }
  // The stored bytes of some columns of a row.
  std::string Stored(const HostWeight& part, int64_t row, int64_t col,
                     int64_t cols) const {
    const auto* const begin = part.data.as<char>() + row * RowBytes(kCols);
    return {begin + RowBytes(col), static_cast<size_t>(RowBytes(cols))};
  }
  std::string StoredOf(const WeightPart& part, int64_t row,
                       int64_t cols) const {
    std::string stored(static_cast<size_t>(RowBytes(cols)), '\0');
    if (format().is_plain()) {
      std::memcpy(
          stored.data(),
          static_cast<const char*>(part.data.data()) + row * RowBytes(cols),
          stored.size());
    } else {
      kernels::UnpackRow(
          {BlockFormatOf(type()), static_cast<const uint8_t*>(part.data.data()),
           part.rows, cols},
          row, reinterpret_cast<uint8_t*>(stored.data()));
    }
    return stored;
  }
  int64_t RowBytes(int64_t cols) const {
    return static_cast<int64_t>(format().bytes(cols));
  }
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  std::mt19937_64 random_{29};
  const std::unique_ptr<Backend> backend_ =
      std::move((*MakeBackends({.threads = 1}))[0]);
};

TEST_P(CutWeightTest, HasTheBytesOfTheSameRows) {
  std::vector<HostWeight> parts;
  for (const int64_t rows : {67, 1, 48}) parts.push_back(Random(rows));
  const auto whole = Pack(parts);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(Cat("round ", round));
    const int64_t blocks = kCols / format().cut_unit;
    const int64_t first = Draw(blocks);
    const int64_t col = first * format().cut_unit;
    const int64_t cols = (1 + Draw(blocks - first)) * format().cut_unit;
    std::vector<WeightCut> cuts;
    std::vector<std::vector<std::string>> expected;
    for (int i = 0; i < 1 + round % 5; ++i) {
      WeightCut cut;
      cut.part = static_cast<size_t>(Draw(3));
      const int64_t all = parts[cut.part].rows;
      // Half of them begin where a group does.
      cut.row =
          Draw(all) / (round % 2 == 0 ? 1 : 16) * (round % 2 == 0 ? 1 : 16);
      cut.rows = Draw(all - cut.row + 1);
      cut.col = col;
      cut.cols = cols;
      cut.begins_part = i == 0 || Draw(2) == 0;
      if (cut.begins_part) expected.emplace_back();
      for (int64_t r = 0; r < cut.rows; ++r) {
        expected.back().push_back(
            Stored(parts[cut.part], cut.row + r, col, cols));
      }
      cuts.push_back(cut);
    }
    const auto made = CutWeight(*whole, cuts, *backend_, {});
    ASSERT_EQ(made->parts.size(), expected.size());
    EXPECT_EQ(made->cols, cols);
    int64_t rows = 0;
    for (size_t p = 0; p < expected.size(); ++p) {
      const WeightPart& part = made->parts[p];
      ASSERT_EQ(part.rows, static_cast<int64_t>(expected[p].size()));
      EXPECT_EQ(part.type, type());
      rows += part.rows;
      for (int64_t r = 0; r < part.rows; ++r) {
        EXPECT_EQ(StoredOf(part, r, cols), expected[p][static_cast<size_t>(r)])
            << "row " << r;
      }
    }
    EXPECT_EQ(made->rows, rows);
  }
}

TEST_P(CutWeightTest, MayHaveNoColumnsOrNoRows) {
  std::vector<HostWeight> parts;
  parts.push_back(Random(32));
  const auto whole = Pack(parts);
  const WeightCut none[] = {{0, 5, 0, 0, kCols}, {0, 0, 32, 0, 0}};
  for (const WeightCut& cut : none) {
    const auto made = CutWeight(*whole, {&cut, 1}, *backend_, {});
    EXPECT_EQ(made->rows, cut.rows);
    EXPECT_EQ(made->cols, cut.cols);
    EXPECT_EQ(made->bytes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, CutWeightTest, ::testing::Range(0, kernels::kNumWeightTypes),
    [](const auto& tested) {
      return std::string(
          kWeightFormats[static_cast<size_t>(tested.param)].name);
    });

}  // namespace
}  // namespace sluice
