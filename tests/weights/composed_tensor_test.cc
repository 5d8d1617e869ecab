// Matrices that a checkpoint keeps in several tensors.

#include "common/weights/composed_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/cat.h"
#include "kernels/block_pack.h"
#include "kernels/elementwise.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice::weights {
namespace {

using testing::AddQuantised;
using ::testing::AllOf;
using testing::BytesOf;
using testing::CheckpointKind;
using ::testing::HasSubstr;
using testing::QuantisedMatrix;
using testing::SafetensorsBuilder;
using testing::TempDir;

constexpr char kName[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kStem[] = "model.layers.0.mlp.up_proj";

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-0.3f, 0.5f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = value(random);
  return values;
}

StatusOr<std::unique_ptr<ModelFile>> OpenFolder(
    const TempDir& dir, const SafetensorsBuilder& tensors,
    const std::string& config) {
  dir.Write("model.safetensors", tensors.Build());
  dir.Write("config.json", Cat("{\"quantization_config\": ", config, "}"));
  return OpenModel(dir.path());
}

// A way to store a matrix, and what it is read as.
struct Stored {
  const char* name;
  CheckpointKind kind;
  int64_t rows, cols, group;
  int bits;
  bool symmetric;
  DType dtype;
};

class ComposedTensorTest : public ::testing::TestWithParam<Stored> {
 protected:
  ComposedTensorTest() {
    const Stored& stored = GetParam();
    matrix_ = testing::Quantised(RandomValues(stored.rows * stored.cols, 3),
                                 stored.rows, stored.cols, stored.group,
                                 stored.bits, stored.symmetric);
    is_f8_ = stored.kind == CheckpointKind::kF8Channel ||
             stored.kind == CheckpointKind::kF8Blocks;
    // Codes with seven bits set are no numbers.
    for (int& code : matrix_.codes) {
      if (is_f8_ && code % 128 == 127) code = 9;
    }
    SafetensorsBuilder tensors;
    AddQuantised(stored.kind, kStem, matrix_, tensors);
    auto opened = OpenFolder(dir_, tensors,
                             testing::QuantisationConfig(stored.kind, matrix_));
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) model_ = std::move(*opened);
  }

  float Expected(int64_t row, int64_t col) const {
    if (!is_f8_) return matrix_.At(row, col);
    int64_t of_row = row;
    int64_t group = col / matrix_.group;
    if (GetParam().kind == CheckpointKind::kF8Blocks) {
      of_row = row / 128 * 128;
      group = col / 128 * 128 / matrix_.group;
    }
    return testing::E4m3Value(
               matrix_.codes[static_cast<size_t>(row * matrix_.cols + col)]) *
           matrix_
               .scales[static_cast<size_t>(of_row * matrix_.groups() + group)];
  }

  void ExpectValues(const Slice& slice, const float* values) const {
    for (int64_t r = slice.row_begin; r < slice.row_end; ++r) {
      for (int64_t c = slice.col_begin; c < slice.col_end; ++c) {
        ASSERT_EQ(*values++, Expected(r, c)) << "row " << r << ", column " << c;
      }
    }
  }

  const TempDir dir_;
  QuantisedMatrix matrix_;
  bool is_f8_ = false;
  std::unique_ptr<ModelFile> model_;
};

TEST_P(ComposedTensorTest, IsOneMatrixOfItsTypeWithAllStoredBytes) {
  ASSERT_NE(model_, nullptr);
  const TensorInfo* info = model_->Find(kName);
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->dtype, GetParam().dtype);
  EXPECT_EQ(info->shape, (std::vector<int64_t>{matrix_.rows, matrix_.cols}));
  uint64_t all = 0;
  for (const TensorInfo& tensor : model_->tensors()) {
    all += static_cast<uint64_t>(tensor.stored_bytes());
  }
  EXPECT_EQ(model_->StoredBytes(kName), all);
  ASSERT_EQ(model_->composed().size(), 1u);
  EXPECT_EQ(model_->composed()[0].parts().size(), model_->tensors().size());
}

TEST_P(ComposedTensorTest, AnySliceAsF32AndBf16HasTheCodesTimesTheScales) {
  ASSERT_NE(model_, nullptr);
  const TensorInfo& info = *model_->Find(kName);
  for (const Slice& slice :
       {Slice::All(info), Slice{3, 11, 0, info.cols()},
        Slice{0, info.rows(), 5, info.cols() - 3}, Slice{7, 8, 33, 34},
        Slice{2, 2, 0, info.cols()}, Slice{9, info.rows(), 64, 96}}) {
    std::vector<float> values(static_cast<size_t>(slice.elements()));
    ASSERT_EQ(Message(model_->ReadF32(kName, slice, values.data())), "");
    ExpectValues(slice, values.data());
    std::vector<uint16_t> halves(values.size());
    ASSERT_EQ(Message(model_->ReadBf16(kName, slice, halves.data())), "");
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(halves[i], F32ToBf16(values[i]));
    }
  }
  EXPECT_NE(
      Message(model_->ReadF32(kName, {0, info.rows() + 1, 0, 1}, nullptr)), "");
}

TEST_P(ComposedTensorTest, BlocksHoldTheSameElements) {
  ASSERT_NE(model_, nullptr);
  const TensorInfo& info = *model_->Find(kName);
  const auto format = BlocksOf(info.dtype);
  if (!format.has_value()) return;  // the test above has read it all
  for (const Slice& slice : {Slice::All(info), Slice{5, 13, 0, info.cols()},
                             Slice{0, info.rows(), 32, 64}}) {
    const int64_t cols = slice.col_end - slice.col_begin;
    HostWeight weight(TypeOfBlocks(*format),
                      slice.row_end - slice.row_begin + 1, cols);
    ASSERT_EQ(Message(model_->ReadMatrix(kName, slice, 1, weight)), "");
    std::vector<float> values(static_cast<size_t>(slice.elements()));
    kernels::WidenBlocks(
        *format, weight.data.as<uint8_t>() + FormatOf(weight.type).bytes(cols),
        slice.elements() / kernels::kShortBlock, values.data());
    ExpectValues(slice, values.data());
  }
}

TEST_P(ComposedTensorTest, CodesWithScalesHoldTheSameElements) {
  ASSERT_NE(model_, nullptr);
  const TensorInfo& info = *model_->Find(kName);
  const bool is_wide = info.dtype == DType::kWideE4M3;
  if (info.dtype != DType::kScaledE4M3 && !is_wide) return;
  using kernels::WeightType;
  const Slice some_rows = {5, 13, 0, info.cols()};
  std::vector<std::pair<WeightType, Slice>> reads = {
      {WeightType::kE4m3, Slice::All(info)},
      {WeightType::kE4m3, some_rows},
      {WeightType::kE4m3, {0, info.rows(), 32, 96}}};
  if (is_wide) {
    reads.emplace_back(WeightType::kE4m3Wide, Slice::All(info));
    reads.emplace_back(WeightType::kE4m3Wide, some_rows);
    reads.emplace_back(WeightType::kE4m3Wide,
                       Slice{0, info.rows(), info.cols() - 128, info.cols()});
  }
  for (const auto& [type, slice] : reads) {
    const int64_t rows = slice.row_end - slice.row_begin;
    const int64_t cols = slice.col_end - slice.col_begin;
    HostWeight weight(type, rows + 1, cols);
    ASSERT_EQ(Message(model_->ReadMatrix(kName, slice, 1, weight)), "");
    std::vector<float> values(static_cast<size_t>(slice.elements()));
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t id = r + 1;
      kernels::Embed({}, {weight.data.data(), weight.type, rows + 1, cols}, &id,
                     {values.data() + r * cols, 1, cols, cols});
    }
    ExpectValues(slice, values.data());
  }
}

using Kind = CheckpointKind;
INSTANTIATE_TEST_SUITE_P(
    Kinds, ComposedTensorTest,
    ::testing::Values(
        Stored{"Gptq", Kind::kGptq, 24, 128, 32, 4, true, DType::kQ4_0},
        Stored{"GptqAsymmetric", Kind::kGptq, 24, 128, 64, 4, false,
               DType::kQ5_0},
        Stored{"GptqOfOneGroup", Kind::kGptqV2, 17, 96, 96, 4, false,
               DType::kQ5_0},
        Stored{"GptqEightBits", Kind::kGptq, 24, 128, 128, 8, true,
               DType::kQ8_0},
        Stored{"GptqEightBitsAsymmetric", Kind::kGptqV2, 24, 128, 64, 8, false,
               DType::kF32},
        Stored{"GptqShortGroups", Kind::kGptq, 24, 128, 16, 4, true,
               DType::kF32},
        Stored{"Awq", Kind::kAwq, 24, 128, 64, 4, false, DType::kQ5_0},
        Stored{"AwqManyColumns", Kind::kAwq, 16, 416, 32, 4, false,
               DType::kQ5_0},
        Stored{"AwqOddColumns", Kind::kAwq, 16, 100, 50, 4, false, DType::kF32},
        Stored{"Packed", Kind::kPacked, 21, 128, 32, 4, true, DType::kQ4_0},
        Stored{"PackedAsymmetric", Kind::kPacked, 21, 128, 128, 4, false,
               DType::kQ5_0},
        Stored{"PackedEightBits", Kind::kPacked, 21, 128, 64, 8, true,
               DType::kQ8_0},
        Stored{"PackedOddColumns", Kind::kPacked, 21, 100, 100, 4, true,
               DType::kF32},
        Stored{"Int8", Kind::kInt8, 21, 128, 128, 8, true, DType::kQ8_0},
        Stored{"F8Channel", Kind::kF8Channel, 21, 384, 384, 8, true,
               DType::kWideE4M3},
        Stored{"F8ChannelOfShortRuns", Kind::kF8Channel, 21, 160, 160, 8, true,
               DType::kScaledE4M3},
        Stored{"F8ChannelInGroups", Kind::kF8Channel, 21, 256, 64, 8, true,
               DType::kScaledE4M3},
        Stored{"F8ChannelOfNoWholeRuns", Kind::kF8Channel, 21, 120, 120, 8,
               true, DType::kF32},
        Stored{"F8BlocksOfRuns", Kind::kF8Blocks, 140, 160, 32, 8, true,
               DType::kScaledE4M3},
        Stored{"F8BlocksOfWideRuns", Kind::kF8Blocks, 140, 256, 128, 8, true,
               DType::kWideE4M3},
        Stored{"F8Blocks", Kind::kF8Blocks, 140, 200, 100, 8, true,
               DType::kF32}),
    [](const auto& tested) { return std::string(tested.param.name); });

QuantisedMatrix SmallMatrix(bool symmetric = true) {
  return testing::Quantised(RandomValues(16 * 64, 5), 16, 64, 32, 4, symmetric);
}

// A matrix of FP8 whose first code or scale is another.
std::string ErrorOfF8(int first_code, float first_scale) {
  QuantisedMatrix matrix =
      testing::Quantised(RandomValues(16 * 64, 5), 16, 64, 64, 8, true);
  for (int& code : matrix.codes) code %= 127;
  matrix.codes[0] = first_code;
  matrix.scales[0] = first_scale;
  SafetensorsBuilder tensors;
  AddQuantised(CheckpointKind::kF8Channel, kStem, matrix, tensors);
  const TempDir dir;
  const auto model = OpenFolder(
      dir, tensors,
      testing::QuantisationConfig(CheckpointKind::kF8Channel, matrix));
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return "";
  HostWeight weight(kernels::WeightType::kE4m3, 16, 64);
  return Message((*model)->ReadMatrix(kName, Slice::All(*(*model)->Find(kName)),
                                      0, weight));
}

TEST(ComposeTensorsTest, CodesAndScalesThatAreNoNumbersAreRefused) {
  EXPECT_EQ(ErrorOfF8(12, 0.5f), "");
  for (const int code : {0x7f, 0xff}) {
    EXPECT_THAT(ErrorOfF8(code, 0.5f),
                AllOf(HasSubstr(Cat(kStem, ".weight")), HasSubstr("row 0"),
                      HasSubstr("no number")));
  }
  EXPECT_THAT(
      ErrorOfF8(12, 3e38f),
      AllOf(HasSubstr(Cat(kStem, ".weight_scale")), HasSubstr("above 2^120")));
}

TEST(ComposeTensorsTest, ColumnsInAnotherOrderHaveTheScalesOfTheirGroups) {
  const QuantisedMatrix matrix = SmallMatrix(/*symmetric=*/false);
  const TempDir dir;
  for (const bool runs : {true, false}) {
    // Columns 0 to 31 have the second group, or every other one has.
    std::vector<int32_t> groups;
    for (int c = 0; c < 64; ++c) groups.push_back(runs ? c < 32 : c % 2);
    SafetensorsBuilder whole;
    AddQuantised(Kind::kGptq, kStem, matrix, whole);
    std::string bytes = whole.Build();
    const std::string old = BytesOf([] {
      std::vector<int32_t> in_order(64, 0);
      std::fill(in_order.begin() + 32, in_order.end(), 1);
      return in_order;
    }());
    bytes.replace(bytes.rfind(old), old.size(), BytesOf(groups));
    dir.Write("model.safetensors", bytes);
    dir.Write("config.json", R"({"quantization_config": {"quant_method": "gptq",
        "bits": 4, "group_size": 32, "sym": false, "desc_act": true}})");
    const auto model = OpenModel(dir.path());
    ASSERT_TRUE(model.ok()) << model.status();
    const TensorInfo& info = *(*model)->Find(kName);
    EXPECT_EQ(info.dtype, runs ? DType::kQ5_0 : DType::kF32);
    std::vector<float> values(16 * 64);
    ASSERT_EQ(
        Message((*model)->ReadF32(kName, Slice::All(info), values.data())), "");
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < 64; ++c) {
        const auto at = static_cast<size_t>(r * 2 + groups[c]);
        EXPECT_EQ(
            values[static_cast<size_t>(r * 64 + c)],
            static_cast<float>(matrix.codes[r * 64 + c] - matrix.zeros[at]) *
                matrix.scales[at]);
      }
    }
  }
}

// A damaged checkpoint, by what it is refused with when it is opened.
struct Refused {
  const char* dtype;
  std::vector<int64_t> shape;  // of the part
  const char* part;
  const char* config;
  const char* message;
};

TEST(ComposeTensorsTest, WhatIsNoMatrixIsRefusedByName) {
  constexpr char kGptq[] = R"({"quant_method": "gptq", "bits": 4})";
  constexpr char kOther[] = R"({"quant_method": "compressed-tensors"})";
  const Refused kRefused[] = {
      {"I32", {8, 16}, ".qweight", kOther, "quant_method awq or gptq"},
      {"I32", {8, 16}, ".qweight", kGptq, "no scales"},
      {"I32",
       {8, 16},
       ".qweight",
       R"({"quant_method": "gptq", "bits": 3})",
       "has 3 bits"},
      {"I32",
       {8, 16},
       ".qweight",
       R"({"quant_method": "awq", "version": "gemv"})",
       "version 'gemv'"},
      {"I32",
       {8, 16},
       ".qweight",
       R"({"quant_method": "gptq", "checkpoint_format": "marlin"})",
       "version 'marlin'"},
      {"F16", {8, 16}, ".qweight", kGptq, "expected I32"},
      {"I32", {8, 16}, ".weight_packed", kOther, "weight_shape"},
      {"U8", {8, 16}, "_blocks", kOther, "has no tensor"},
  };
  const TempDir dir;
  for (const Refused& refused : kRefused) {
    int64_t bytes = std::string_view(refused.dtype) == "U8"    ? 1
                    : std::string_view(refused.dtype) == "F16" ? 2
                                                               : 4;
    for (const int64_t size : refused.shape) bytes *= size;
    SafetensorsBuilder tensors;
    const std::string name = Cat(kStem, refused.part);
    tensors.Tensor(name, refused.dtype, refused.shape,
                   std::string(static_cast<size_t>(bytes), '\0'));
    const auto model = OpenFolder(dir, tensors, refused.config);
    EXPECT_THAT(Message(model.status()),
                AllOf(HasSubstr(name), HasSubstr(refused.message)));
  }
}

TEST(ComposeTensorsTest, ShapesOfScalesThatDoNotFitAreRefused) {
  const TempDir dir;
  const std::string ones(16 * 64, '\1');
  for (const auto& [shape, message] :
       {std::pair{std::vector<int64_t>{16, 3}, "equal groups"},
        {{15, 1}, "one per 128 rows"},
        {{16, 1, 1}, "equal groups"}}) {
    SafetensorsBuilder tensors;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    tensors.Tensor(kName, "I8", {16, 64}, ones)
        .Tensor(Cat(kStem, ".weight_scale"), "F32", shape,
                BytesOf(std::vector<float>(static_cast<size_t>(count), 1)));
    EXPECT_THAT(Message(OpenFolder(dir, tensors,
                                   R"({"quant_method": "compressed-tensors"})")
                            .status()),
                AllOf(HasSubstr(kName), HasSubstr(message)));
  }
}

TEST(ComposeTensorsTest, AWeightBesideItsCodesIsASecondOne) {
  const TempDir dir;
  SafetensorsBuilder tensors;
  const QuantisedMatrix matrix = SmallMatrix();
  AddQuantised(Kind::kGptq, kStem, matrix, tensors);
  tensors.Tensor(kName, "F32", {1}, BytesOf(1.0f));
  EXPECT_THAT(
      Message(OpenFolder(dir, tensors,
                         testing::QuantisationConfig(Kind::kGptq, matrix))
                  .status()),
      AllOf(HasSubstr("second"), HasSubstr(kName)));
}

Status ReadBlocks(const ModelFile& model) {
  const TensorInfo& info = *model.Find(kName);
  HostWeight weight(TypeOfBlocks(*BlocksOf(info.dtype)), info.rows(),
                    info.cols());
  return model.ReadMatrix(kName, Slice::All(info), 0, weight);
}

TEST(ReadComposedTest, BlocksRefuseScalesThatAreNoF16AndF32TakesThem) {
  QuantisedMatrix matrix = SmallMatrix();
  matrix.scales[3] = 0x1p-30f;  // a BF16
  const TempDir dir;
  SafetensorsBuilder tensors;
  AddQuantised(Kind::kPacked, kStem, matrix, tensors);
  const auto model = OpenFolder(
      dir, tensors, testing::QuantisationConfig(Kind::kPacked, matrix));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Message(ReadBlocks(**model)),
              AllOf(HasSubstr("row 1, column 32"), HasSubstr("no F16"),
                    HasSubstr("--weights f32")));
  std::vector<float> values(16 * 64);
  EXPECT_EQ(Message((*model)->ReadF32(kName, {0, 16, 0, 64}, values.data())),
            "");
  EXPECT_EQ(values[64 + 40], matrix.At(1, 40));
  // Zeros need no scale.
  for (int c = 32; c < 64; ++c) matrix.codes[64 + c] = 8;
  SafetensorsBuilder zeros;
  AddQuantised(Kind::kPacked, kStem, matrix, zeros);
  const auto other = OpenFolder(
      dir, zeros, testing::QuantisationConfig(Kind::kPacked, matrix));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Message(ReadBlocks(**other)), "");
}

TEST(ReadComposedTest, ZeroPointsThatTheConfigDeniesAreRefused) {
  QuantisedMatrix matrix = SmallMatrix();
  matrix.zeros[5] = 3;
  matrix.codes[2 * 64 + 33] = 15;
  const TempDir dir;
  SafetensorsBuilder tensors;
  AddQuantised(Kind::kGptq, kStem, matrix, tensors);
  const auto model = OpenFolder(
      dir, tensors, testing::QuantisationConfig(Kind::kGptq, matrix));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Message(ReadBlocks(**model)),
              AllOf(HasSubstr("row 2, columns from 32"),
                    HasSubstr("zero point 3"), HasSubstr("Q4_0")));
}

TEST(ReadComposedTest, EightBitsThatTheirZeroPointMovesOutAreRefused) {
  for (const auto& [zero, code] : {std::pair{100, 255}, {129, 0}, {0, 128}}) {
    QuantisedMatrix matrix =
        testing::Quantised(RandomValues(16 * 64, 3), 16, 64, 32, 8, true);
    for (size_t i = 0; i < 32; ++i) {
      matrix.codes[2 * 64 + 32 + i] = 128;
    }
    matrix.zeros[5] = zero;
    matrix.codes[2 * 64 + 33] = code;
    const TempDir dir;
    SafetensorsBuilder tensors;
    AddQuantised(Kind::kGptqV2, kStem, matrix, tensors);
    const auto model = OpenFolder(
        dir, tensors, testing::QuantisationConfig(Kind::kGptqV2, matrix));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(Message(ReadBlocks(**model)),
                AllOf(HasSubstr("row 2, columns from 32"),
                      HasSubstr(Cat("zero point ", zero)), HasSubstr("Q8_0"),
                      HasSubstr("zero points are 128")));
  }
}

TEST(ReadComposedTest, GroupsOutsideTheScalesAreRefused) {
  const QuantisedMatrix matrix = SmallMatrix();
  const TempDir dir;
  SafetensorsBuilder tensors;
  AddQuantised(Kind::kGptq, kStem, matrix, tensors);
  std::string bytes = tensors.Build();
  std::string last = bytes.substr(bytes.size() - 4);
  ASSERT_EQ(last, BytesOf(int32_t{1}));  // g_idx of the last column
  bytes.replace(bytes.size() - 4, 4, BytesOf(int32_t{7}));
  dir.Write("model.safetensors", bytes);
  dir.Write("config.json",
            Cat("{\"quantization_config\": ",
                testing::QuantisationConfig(Kind::kGptq, matrix), "}"));
  const auto model = OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Message(ReadBlocks(**model)),
              AllOf(HasSubstr("g_idx"), HasSubstr("group 7 for column 63"),
                    HasSubstr("limits 0 and 1")));
}

}  // namespace
}  // namespace sluice::weights
