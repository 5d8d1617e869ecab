// Matrices coded as FP8, GPTQ and AWQ: codes by the formats' descriptions, and
// elements as our reader finds them.

#include "common/weights/encode_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/weights/safetensors_writer.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

// The number that a code of E4M3 means, by the format's description.
double E4m3(int code) {
  const int exponent = code >> 3 & 15;
  const double size =
      exponent == 0 ? (code & 7) / 8.0 * std::pow(2.0, -6)
                    : (1 + (code & 7) / 8.0) * std::pow(2.0, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

// The nearest code, of two equally near ones the even one.
int NearestE4m3(double value) {
  int best = 0;
  for (int code = 0; code < 127; ++code) {
    const double distance = std::fabs(E4m3(code) - std::fabs(value));
    const double least = std::fabs(E4m3(best) - std::fabs(value));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return std::signbit(value) ? best | 0x80 : best;
}

TEST(EncodeMatrixTest, E4m3IsTheNearestOfAllCodesTiesToEven) {
  for (int code = 0; code < 127; ++code) {
    const auto value = static_cast<float>(E4m3(code));
    EXPECT_EQ(E4m3Of(value), code);
    EXPECT_EQ(E4m3Of(-value), code | 0x80);
    if (code == 126) break;
    const auto middle = static_cast<float>((E4m3(code) + E4m3(code + 1)) / 2);
    for (const float near :
         {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(E4m3Of(near), NearestE4m3(near)) << near;
    }
  }
  EXPECT_EQ(E4m3Of(1e9f), 0x7e);
  EXPECT_EQ(E4m3Of(-460.0f), 0xfe);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponents(-14, 10);
  for (int i = 0; i < 20'000; ++i) {
    const float value =
        std::exp2(exponents(random)) * (i % 2 == 0 ? 1.0f : -1.0f);
    ASSERT_EQ(E4m3Of(value), NearestE4m3(std::clamp(value, -448.0f, 448.0f)))
        << value;
  }
}

std::vector<float> RandomElements(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.01f, 0.05f);
  std::vector<float> elements(static_cast<size_t>(count));
  for (float& element : elements) element = normal(random);
  return elements;
}

struct Case {
  const char* name;
  Coding coding;
  int64_t group;
  int64_t rows;
  int64_t cols;
};

class EncodeMatrixShapesTest : public ::testing::TestWithParam<Case> {
 protected:
  MatrixCoding coding() const { return {GetParam().coding, GetParam().group}; }

  // The coded matrix as a folder's.
  std::unique_ptr<ModelFile> Written(const QuantizedElements& made) {
    const TensorInfo info = {
        "m.weight", DType::kF32, {GetParam().rows, GetParam().cols}};
    auto writer = SafetensorsWriter::Create(dir_.path() + "/model.safetensors",
                                            TensorsOf(info, coding()));
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append(made.bytes.data(), made.bytes.size()).ok());
    EXPECT_TRUE((*writer)->Close().ok());
    const char* said =
        GetParam().coding == Coding::kFp8
            ? R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"
        : GetParam().coding == Coding::kGptq
            ? R"({"quant_method": "gptq", "bits": 4, "sym": true})"
            : R"({"quant_method": "awq", "bits": 4, "zero_point": true})";
    dir_.Write("config.json", Cat(R"({"quantization_config": )", said, "}"));
    auto model = OpenModel(dir_.path());
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  const TempDir dir_;
};

TEST_P(EncodeMatrixShapesTest, TheReaderFindsTheNearestElements) {
  const Coding kind = GetParam().coding;
  const int64_t group = GetParam().group;
  const int64_t rows = GetParam().rows;
  const int64_t cols = GetParam().cols;
  auto elements = RandomElements(rows * cols, 5);
  // A group of zeros, of one sign, of one large number, of tiny ones.
  const auto cell = [&](int64_t r, int64_t c) -> float& {
    return elements[static_cast<size_t>(r * cols + c)];
  };
  for (int64_t c = 0; c < std::min<int64_t>(cols, 128); ++c) {
    cell(0, c) = 0;
    cell(1, c) = std::fabs(cell(1, c)) + 0.5f;
    cell(2, c) = -std::fabs(cell(2, c)) - 0.5f;
    cell(3, c) *= 1e-9f;
  }
  cell(4, 5) = 900;
  const auto made = EncodeMatrix(coding(), rows, cols, elements.data());
  ASSERT_TRUE(made.ok()) << made.status();
  const auto model = Written(*made);
  const TensorInfo* info = model->Find("m.weight");
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->shape, (std::vector<int64_t>{rows, cols}));
  std::vector<float> read(elements.size());
  ASSERT_TRUE(model->ReadF32("m.weight", Slice::All(*info), read.data()).ok());
  // Of FP8's blocks.
  const int64_t blocks_across = (cols + 127) / 128;
  std::vector<float> scales(
      static_cast<size_t>((rows + 127) / 128 * blocks_across));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      float& scale =
          scales[static_cast<size_t>(r / 128 * blocks_across + c / 128)];
      scale = std::max(scale, std::fabs(cell(r, c)) / 448.0f);
    }
  }
  double errors = 0;
  double squares = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<size_t>(r * cols + c);
      const double wanted = elements[at];
      errors += (wanted - read[at]) * (wanted - read[at]);
      squares += wanted * wanted;
      double half_step = 0;
      if (kind == Coding::kFp8) {
        const float scale =
            scales[static_cast<size_t>(r / 128 * blocks_across + c / 128)];
        const auto nearest =
            static_cast<float>(E4m3(NearestE4m3(elements[at] / scale)));
        ASSERT_EQ(read[at], nearest * scale) << r << ", " << c;
        continue;
      }
      float low = 0;
      float high = 0;
      for (int64_t i = c / group * group; i < (c / group + 1) * group; ++i) {
        low = std::min(low, cell(r, i));
        high = std::max(high, cell(r, i));
      }
      // A step is an F16, at least 2^-24, at most 2^-10 above the exact one.
      const double step = kind == Coding::kAwq ? (double{high} - low) / 15
                                               : std::max(high, -low) / 7.5;
      half_step = std::max(step * (1 + 0x1p-10), step > 0 ? 0x1p-24 : 0) / 2;
      ASSERT_LE(std::fabs(wanted - read[at]), half_step * (1 + 1e-6))
          << r << ", " << c;
    }
  }
  EXPECT_NEAR(made->relative_error, std::sqrt(errors / squares), 1e-7);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EncodeMatrixShapesTest,
    ::testing::Values(Case{"Fp8Whole", Coding::kFp8, 128, 256, 384},
                      Case{"Fp8Edges", Coding::kFp8, 128, 137, 200},
                      Case{"Fp8Odd", Coding::kFp8, 128, 131, 37},
                      Case{"Gptq128", Coding::kGptq, 128, 24, 384},
                      Case{"Gptq32", Coding::kGptq, 32, 40, 96},
                      Case{"Awq128", Coding::kAwq, 128, 24, 384},
                      Case{"Awq64", Coding::kAwq, 64, 40, 192}),
    [](const auto& tested) { return std::string(tested.param.name); });

uint32_t Word(const Buffer& bytes, size_t at) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + at * sizeof(word), sizeof(word));
  return word;
}

// Row r has step 2^r and elements -7 to 7 of it, which GPTQ has as codes 1 to
// 15.
std::vector<float> Steps(int64_t rows, int64_t cols) {
  std::vector<float> elements;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float code = c == 0 ? 7.5f : static_cast<float>((c + r) % 15 - 7);
      elements.push_back(std::ldexp(code, static_cast<int>(r)));
    }
  }
  return elements;
}

TEST(EncodeMatrixTest, GptqsWordsHaveEightColumnsOfARowTheFirstOneLowest) {
  const auto elements = Steps(8, 32);
  const auto made = EncodeMatrix({Coding::kGptq, 32}, 8, 32, elements.data());
  ASSERT_TRUE(made.ok()) << made.status();
  // [4, 8] words, [1, 1] zero points, [1, 8] scales, [32] groups.
  ASSERT_EQ(made->bytes.size(), size_t{4 * (32 + 1 + 4 + 32)});
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t c = 1; c < 32; ++c) {
      const uint32_t word =
          Word(made->bytes, static_cast<size_t>(c / 8 * 8 + r));
      EXPECT_EQ(word >> (4 * (c % 8)) & 15, (c + r) % 15 + 1);
    }
  }
  // Zero points of 8 are stored less 1.
  EXPECT_EQ(Word(made->bytes, 32), 0x77777777u);
  EXPECT_EQ(Word(made->bytes, 33), 0x40003c00u);  // 1 and 2 as F16
  for (size_t c = 0; c < 32; ++c) EXPECT_EQ(Word(made->bytes, 37 + c), 0u);
}

TEST(EncodeMatrixTest, AwqsWordsHaveEightRowsOfAColumnInItsOrder) {
  std::vector<float> elements;
  for (int r = 0; r < 8; ++r) {
    // Steps of 1 from -r to 15 - r.
    for (int c = 0; c < 32; ++c) {
      elements.push_back(static_cast<float>(c % 16 - r));
    }
  }
  const auto made = EncodeMatrix({Coding::kAwq, 32}, 8, 32, elements.data());
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->bytes.size(), size_t{4 * (32 + 1 + 4)});
  EXPECT_EQ(made->relative_error, 0);
  for (size_t c = 0; c < 32; ++c) {
    EXPECT_EQ(Word(made->bytes, c), 0x11111111u * (c % 16));
  }
  // Nibbles from the lowest on: rows 0, 2, 4, 6, 1, 3, 5, 7.
  EXPECT_EQ(Word(made->bytes, 32), 0x75316420u);
  EXPECT_EQ(Word(made->bytes, 33), 0x3c003c00u);
}

TEST(EncodeMatrixTest, WhatIsNoNumberIsRefusedByItsPlace) {
  std::vector<float> elements(8 * 128, 1.0f);
  const auto error = [&](Coding coding, float value) {
    elements[2 * 128 + 3] = value;
    const auto made = EncodeMatrix({coding, 128}, 8, 128, elements.data());
    return Message(made.status());
  };
  for (const Coding coding : {Coding::kFp8, Coding::kGptq, Coding::kAwq}) {
    EXPECT_THAT(error(coding, std::numeric_limits<float>::quiet_NaN()),
                HasSubstr("element 3 of row 2 is "));
    EXPECT_THAT(error(coding, -std::numeric_limits<float>::infinity()),
                HasSubstr("element 3 of row 2 is -inf"));
  }
  EXPECT_EQ(error(Coding::kFp8, 3e38f), "");
  EXPECT_THAT(error(Coding::kGptq, 1e6f), HasSubstr("GPTQ has numbers up to"));
}

TEST(EncodeMatrixTest, OtherShapesHaveNoCoding) {
  EXPECT_TRUE(CanEncode({Coding::kGptq, 32}, 8, 96));
  EXPECT_FALSE(CanEncode({Coding::kGptq, 64}, 8, 96));
  EXPECT_FALSE(CanEncode({Coding::kAwq, 32}, 12, 96));
  EXPECT_TRUE(CanEncode({Coding::kFp8}, 3, 5));
  // Its scales would be those of equal groups of a row.
  EXPECT_FALSE(CanEncode({Coding::kFp8}, 1, 200));
  EXPECT_FALSE(CanEncode({}, 128, 128));
}

}  // namespace
}  // namespace sluice::weights
