#include "kernels/cuda/fast/weight_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/fast/tile_reference.h"

namespace sluice::kernels::cuda {
namespace {

// `bytes` at a 64-byte address, each of them `value` at first.
class TileMemory {
 public:
  TileMemory(int64_t bytes, uint8_t value)
      : lines_(static_cast<size_t>(bytes) / sizeof(TileLine) + 2),
        bytes_(static_cast<size_t>(bytes)) {
    std::memset(data(), value, lines_.size() * sizeof(TileLine));
  }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(lines_.data()); }
  // Those behind the last one, too.
  std::vector<uint8_t> All() {
    return {data(), data() + bytes_ + sizeof(TileLine)};
  }

 private:
  struct alignas(64) TileLine {
    uint8_t bytes[64];
  };
  std::vector<TileLine> lines_;
  size_t bytes_;
};

struct TileShape {
  WeightType type;
  int64_t rows;
  int64_t cols;
};

// Any bytes are a weight: exponents of 0 and 255 among them.
std::vector<uint8_t> AnyBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

class PackTilesTest : public testing::TestWithParam<TileShape> {};

TEST_P(PackTilesTest, WritesThePlainOrderAndNothingBehindIt) {
  const auto [type, rows, cols] = GetParam();
  const auto bytes = AnyBytes(FormatOf(type).bytes(rows * cols));
  TileMemory stored(static_cast<int64_t>(bytes.size()), 0);
  if (!bytes.empty()) std::memcpy(stored.data(), bytes.data(), bytes.size());
  const WeightView view = {stored.data(), type, rows, cols};
  const int64_t size = TileBytes(type, rows, cols);
  TileMemory want(size, 0xA5);
  PackTilesPlainly(view, want.data());
  for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
    Machine machine(schedule);
    TileMemory got(size, 0xA5);
    PackTiles(&machine, view, got.data());
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
    EXPECT_EQ(got.All(), want.All());
  }
}

std::vector<TileShape> TileShapes() {
  std::vector<TileShape> shapes;
  for (const int64_t rows : {0, 1, 7, 8, 9, 15, 16, 17, 33, 130}) {
    for (const int64_t cols : {1, 2, 3, 5, 15, 16, 17, 30, 31, 32, 33, 48}) {
      shapes.push_back({WeightType::kBf16, rows, cols});
    }
    for (const WeightType type : TiledTypes()) {
      if (type == WeightType::kBf16) continue;
      for (const int64_t cols : {32, 64, 96, 288}) {
        shapes.push_back({type, rows, ColsOf(type, cols)});
      }
    }
  }
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(All, PackTilesTest, testing::ValuesIn(TileShapes()),
                         [](const auto& shape) {
                           return std::string(FormatOf(shape.param.type).name) +
                                  "_" + std::to_string(shape.param.rows) + "x" +
                                  std::to_string(shape.param.cols);
                         });

TEST(PackTilesSlicesTest, RowsFromAMultipleOf16OnAreAWeightOfTheirOwn) {
  constexpr int64_t kAllRows = 50;
  for (const WeightType type : TiledTypes()) {
    const int64_t all_cols = ColsOf(type, 96);
    const auto bytes = AnyBytes(FormatOf(type).bytes(kAllRows * all_cols));
    TileMemory stored(static_cast<int64_t>(bytes.size()), 0);
    std::memcpy(stored.data(), bytes.data(), bytes.size());
    const int64_t size = TileBytes(type, kAllRows, all_cols);
    TileMemory want(size, 0xA5);
    PackTilesPlainly({stored.data(), type, kAllRows, all_cols}, want.data());
    Machine machine(Schedule::kForward);
    TileMemory got(size, 0xA5);
    for (int64_t row = 0; row < kAllRows; row += 2 * kTileSide) {
      const int64_t rows = std::min<int64_t>(2 * kTileSide, kAllRows - row);
      PackTiles(&machine,
                {stored.data() + FormatOf(type).bytes(row * all_cols), type,
                 rows, all_cols},
                got.data() + TileBytes(type, row, all_cols));
    }
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
    EXPECT_EQ(got.All(), want.All()) << FormatOf(type).name;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
