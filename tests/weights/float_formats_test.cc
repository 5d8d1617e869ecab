// Matrices of small floating-point codes, as released tools write them, and
// checkpoints whose matrices differ in bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/weights/composed_tensor.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice::weights {
namespace {

using testing::BytesOf;
using ::testing::HasSubstr;
using testing::SafetensorsBuilder;
using testing::TempDir;

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kPrefix[] = "model.layers.0.mlp.up_proj";
constexpr int64_t kRows = 12;
constexpr int64_t kCols = 96;
constexpr float kE2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};

struct Opened {
  TempDir dir;
  std::unique_ptr<ModelFile> model;
  std::string error;
};

std::unique_ptr<Opened> Open(const SafetensorsBuilder& tensors,
                             std::string_view config) {
  auto opened = std::make_unique<Opened>();
  opened->dir.Write("model.safetensors", tensors.Build());
  opened->dir.Write("config.json",
                    Cat("{\"quantization_config\": ", config, "}"));
  auto model = OpenModel(opened->dir.path());
  if (model.ok()) {
    opened->model = *std::move(model);
  } else {
    opened->error = Message(model.status());
  }
  return opened;
}

std::vector<uint8_t> RandomBytes(size_t count, uint32_t seed, int mask) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() & mask);
  return bytes;
}

// Codes [kRows, kCols] of four bits, two in a byte, and scales of E4M3 for 16
// columns each.
struct Nvfp4 {
  std::vector<uint8_t> codes = RandomBytes(kRows * kCols / 2, 1, 0xff);
  // No sign and no NaN.
  std::vector<uint8_t> scales = RandomBytes(kRows * kCols / 16, 2, 0x77);

  float At(int64_t row, int64_t col) const {
    const uint8_t byte = codes[static_cast<size_t>((row * kCols + col) / 2)];
    const int code = col % 2 == 0 ? byte & 15 : byte >> 4;
    return (code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7];
  }
  float ScaleAt(int64_t row, int64_t col) const {
    return testing::E4m3Value(
        scales[static_cast<size_t>(row * (kCols / 16) + col / 16)]);
  }
  void AddTo(SafetensorsBuilder& to, const char* codes_name,
             const char* global_name, float global) const {
    to.Tensor(Cat(kPrefix, codes_name), "U8", {kRows, kCols / 2},
              BytesOf(codes))
        .Tensor(Cat(kPrefix, ".weight_scale"), "F8_E4M3", {kRows, kCols / 16},
                BytesOf(scales))
        .Tensor(Cat(kPrefix, global_name), "F32", {1}, BytesOf(global));
  }
};

TEST(FloatFormatsTest, Nvfp4HasTheScalesOfEitherTool) {
  const Nvfp4 matrix;
  const float global = 0.37f;
  for (const bool divides : {true, false}) {
    SafetensorsBuilder tensors;
    matrix.AddTo(tensors, divides ? ".weight_packed" : ".weight",
                 divides ? ".weight_global_scale" : ".weight_scale_2", global);
    const auto opened = Open(tensors, R"({"quant_method": "any"})");
    ASSERT_NE(opened->model, nullptr) << opened->error;
    const TensorInfo* info = opened->model->Find(kMatrix);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->dtype, DType::kF32);
    EXPECT_EQ(info->shape, (std::vector<int64_t>{kRows, kCols}));
    ASSERT_EQ(opened->model->composed().size(), 1u);
    EXPECT_EQ(opened->model->composed()[0].parts().size(), 3u);
    for (const Slice& slice :
         {Slice::All(*info), Slice{3, 5, 17, 50}, Slice{11, 12, 95, 96}}) {
      std::vector<float> values(static_cast<size_t>(slice.elements()));
      ASSERT_EQ(Message(opened->model->ReadF32(kMatrix, slice, values.data())),
                "");
      const float* value = values.data();
      for (int64_t r = slice.row_begin; r < slice.row_end; ++r) {
        for (int64_t c = slice.col_begin; c < slice.col_end; ++c) {
          const float scale = divides ? matrix.ScaleAt(r, c) / global
                                      : matrix.ScaleAt(r, c) * global;
          ASSERT_EQ(*value++, matrix.At(r, c) * scale) << r << ", " << c;
        }
      }
    }
  }
}

TEST(FloatFormatsTest, Nvfp4WithoutItsNumberOrOfOtherShapesIsRefusedByName) {
  const Nvfp4 matrix;
  SafetensorsBuilder lacks;
  matrix.AddTo(lacks, ".weight_packed", ".other", 1);
  EXPECT_THAT(Open(lacks, "{}")->error,
              HasSubstr("is of NVFP4 and has neither"));
  SafetensorsBuilder odd;
  odd.Tensor(Cat(kPrefix, ".weight"), "U8", {kRows, kCols / 2},
             BytesOf(matrix.codes))
      .Tensor(Cat(kPrefix, ".weight_scale"), "F8_E4M3", {kRows / 2, kCols / 8},
              BytesOf(matrix.scales))
      .Tensor(Cat(kPrefix, ".weight_scale_2"), "F32", {1}, BytesOf(1.0f));
  EXPECT_THAT(Open(odd, "{}")->error, HasSubstr("for each 16 columns"));
}

// A matrix of FP8 codes with these scales, read as F32.
std::vector<float> ReadF8(const std::vector<uint8_t>& codes, const char* dtype,
                          std::vector<int64_t> shape, std::string_view scales,
                          std::string_view config, DType as) {
  SafetensorsBuilder tensors;
  tensors.Tensor(kMatrix, "F8_E4M3", {kRows, kCols}, BytesOf(codes))
      .Tensor(Cat(kPrefix, ".weight_scale"), dtype, shape, scales);
  const auto opened = Open(tensors, config);
  EXPECT_NE(opened->model, nullptr) << opened->error;
  if (opened->model == nullptr) return {};
  EXPECT_EQ(opened->model->Find(kMatrix)->dtype, as);
  std::vector<float> values(kRows * kCols);
  EXPECT_EQ(Message(opened->model->ReadF32(kMatrix, {0, kRows, 0, kCols},
                                           values.data())),
            "");
  return values;
}

TEST(FloatFormatsTest, Mxfp8HasPowersOfTwoInBytesOrAsTheirDtype) {
  const auto codes = RandomBytes(kRows * kCols, 3, 0x77);
  auto scales = RandomBytes(kRows * kCols / 32, 4, 15);
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(scale + 120);
  for (const char* dtype : {"U8", "F8_E8M0"}) {
    const auto values = ReadF8(codes, dtype, {kRows, kCols / 32},
                               BytesOf(scales), "{}", DType::kScaledE4M3);
    ASSERT_EQ(values.size(), codes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i],
                std::ldexp(testing::E4m3Value(codes[i]), scales[i / 32] - 127));
    }
  }
}

TEST(FloatFormatsTest, BlocksOfScalesMayBeATextAndHaveDimensionsOfOne) {
  const auto codes = RandomBytes(kRows * kCols, 3, 0x77);
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};  // [2, 3]
  const char* text = R"({"quant_method": "compressed-tensors",
      "config_groups": {"a": {"weights": {"block_structure": "128x128"}},
                        "b": {"weights": {"block_structure": "8x32"}}}})";
  const char* list = R"({"quant_method": "fp8", "weight_block_size": [8, 32]})";
  for (const auto& [config, shape] :
       {std::pair(text, std::vector<int64_t>{2, 3}),
        std::pair(list, std::vector<int64_t>{2, 1, 3, 1})}) {
    const auto values = ReadF8(codes, "F32", shape, BytesOf(scales), config,
                               DType::kScaledE4M3);
    ASSERT_EQ(values.size(), codes.size());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        const auto at = static_cast<size_t>(r * kCols + c);
        const auto of = static_cast<size_t>(r / 8 * 3 + c / 32);
        ASSERT_EQ(values[at], testing::E4m3Value(codes[at]) * scales[of]);
      }
    }
  }
}

TEST(FloatFormatsTest, MatricesOfACheckpointMayDifferInBits) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> values(16 * 64);
  for (float& v : values) v = value(random);
  SafetensorsBuilder tensors;
  std::vector<testing::QuantisedMatrix> matrices;
  for (const int bits : {4, 8}) {
    matrices.push_back(testing::Quantised(values, 16, 64, 32, bits, true));
    AddQuantised(testing::CheckpointKind::kGptq, Cat("m", bits),
                 matrices.back(), tensors);
  }
  for (const char* config :
       {R"({"quant_method": "gptq", "bits": 4,
            "dynamic": {"+:m8": {"bits": 8}}})",
        R"({"quant_method": "auto-round", "bits": 4, "sym": true,
            "packing_format": "auto_round:auto_gptq",
            "extra_config": {"m8": {"bits": 8}}})"}) {
    const auto opened = Open(tensors, config);
    ASSERT_NE(opened->model, nullptr) << opened->error;
    for (const testing::QuantisedMatrix& matrix : matrices) {
      const std::string name = Cat("m", matrix.bits, ".weight");
      EXPECT_EQ(opened->model->Find(name)->dtype,
                matrix.bits == 4 ? DType::kQ4_0 : DType::kQ8_0);
      std::vector<float> read(values.size());
      ASSERT_EQ(
          Message(opened->model->ReadF32(name, {0, 16, 0, 64}, read.data())),
          "");
      for (int64_t r = 0; r < 16; ++r) {
        for (int64_t c = 0; c < 64; ++c) {
          ASSERT_EQ(read[static_cast<size_t>(r * 64 + c)], matrix.At(r, c));
        }
      }
    }
  }
  // A matrix that is not symmetric needs blocks that hold its zero points.
  const auto opened = Open(tensors, R"({"quant_method": "gptq", "bits": 4,
      "dynamic": {"+:m4": {"sym": false}}})");
  EXPECT_EQ(opened->model->Find("m4.weight")->dtype, DType::kQ5_0);
}

}  // namespace
}  // namespace sluice::weights
