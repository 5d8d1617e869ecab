#include "common/device/cuda/weight_upload.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "tests/kernels/cuda/fast/tile_reference.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using kernels::WeightType;

class WeightUploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    runtime_ = cuda::Runtime::Open(0, &error);
    if (runtime_ == nullptr) GTEST_SKIP() << error;
  }
  // What the device has at `data`.
  std::vector<uint8_t> BytesAt(const void* data, size_t bytes) {
    std::vector<uint8_t> all(bytes);
    runtime_->CopyOut(data, all.data(), {bytes});
    runtime_->Sync();
    return all;
  }
  static HostWeight AnyWeight(WeightType type, int64_t rows, int64_t cols) {
    HostWeight weight(type, rows, cols);
    for (size_t i = 0; i < weight.data.size(); ++i) {
      weight.data.as<uint8_t>()[i] = static_cast<uint8_t>(i * 37 + i / 256);
    }
    return weight;
  }

  std::unique_ptr<cuda::Runtime> runtime_;
};

TEST_F(WeightUploadTest, SlicesOfAnySizePackWhatTheWholeWeightIs) {
  for (const size_t slice : {size_t{1}, size_t{5000}, size_t{1} << 20}) {
    WeightUpload upload(&*runtime_, slice);
    for (const WeightType type : cuda::TiledTypes()) {
      for (const int64_t rows : {1, 16, 33, 150}) {
        HostWeight weight = AnyWeight(type, rows, cuda::ColsOf(type, 96));
        const auto bytes =
            static_cast<size_t>(cuda::TileBytes(type, rows, weight.cols));
        std::vector<uint8_t> want(bytes);
        cuda::PackTilesPlainly({weight.data.data(), type, rows, weight.cols},
                               want.data());
        void* const tiles = runtime_->Allocate(bytes);
        upload.PackTiles(weight, tiles);
        // The caller's bytes are not needed any more.
        std::memset(weight.data.data(), 0xEE, weight.data.size());
        EXPECT_EQ(BytesAt(tiles, bytes), want)
            << FormatOf(type).name << ", " << rows << " rows, slices of "
            << slice;
        runtime_->Free(tiles);
      }
    }
  }
}

TEST_F(WeightUploadTest, CopiesBytesInSlices) {
  WeightUpload upload(&*runtime_, 1000);
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{1000}, size_t{4321}}) {
    std::vector<uint8_t> from(bytes);
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7);
    const std::vector<uint8_t> want = from;
    void* const to = runtime_->Allocate(bytes);
    upload.Copy(from.data(), bytes, to);
    std::fill(from.begin(), from.end(), uint8_t{0xEE});
    EXPECT_EQ(BytesAt(to, bytes), want);
    runtime_->Free(to);
  }
}

TEST_F(WeightUploadTest, AWeightWithoutRowsOrColumnsIsNothing) {
  WeightUpload upload(&*runtime_);
  upload.PackTiles(HostWeight(WeightType::kBf16, 0, 64), nullptr);
  upload.PackTiles(HostWeight(WeightType::kE4m3, 32, 0), nullptr);
}

TEST_F(WeightUploadTest, ReleaseGivesTheDevicesSliceBackAndWhatIsPackedStays) {
  WeightUpload upload(&*runtime_);
  const HostWeight weight = AnyWeight(WeightType::kE4m3, 64, 96);
  const auto bytes =
      static_cast<size_t>(cuda::TileBytes(weight.type, 64, weight.cols));
  std::vector<uint8_t> want(bytes);
  cuda::PackTilesPlainly({weight.data.data(), weight.type, 64, weight.cols},
                         want.data());
  void* const tiles = runtime_->Allocate(bytes);
  // The first use of a kernel may take memory that stays.
  upload.PackTiles(weight, tiles);
  upload.Release();
  const uint64_t before = runtime_->FreeMemory();
  for (int round = 0; round < 2; ++round) {
    upload.PackTiles(weight, tiles);
    EXPECT_LE(runtime_->FreeMemory(), before);
    upload.Release();
    EXPECT_EQ(runtime_->FreeMemory(), before);
    EXPECT_EQ(BytesAt(tiles, bytes), want);
  }
  upload.Release();  // again: nothing
  runtime_->Free(tiles);
}

}  // namespace
}  // namespace sluice
