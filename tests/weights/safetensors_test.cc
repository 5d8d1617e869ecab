#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "common/base/cat.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::Safetensors;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

// What opening a file of these bytes answers; "" if it opens.
std::string Refusal(std::string_view bytes) {
  const TempDir dir;
  const auto model = OpenModel(dir.Write("model.safetensors", bytes));
  if (model.ok()) return "";
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(model.status()), HasSubstr("model.safetensors"));
  return Message(model.status());
}

std::string Refusal(std::string_view header, size_t data_bytes) {
  return Refusal(Safetensors(header, std::string(data_bytes, '\0')));
}

// A header with tensor `a` of these fields.
std::string One(std::string_view dtype, std::string_view shape,
                std::string_view offsets) {
  return Cat(R"({"a":{"dtype":")", dtype, R"(","shape":)", shape,
             R"(,"data_offsets":)", offsets, "}}");
}

TEST(SafetensorsTest, OpensMetadataPaddingAndEmptyTensors) {
  EXPECT_EQ(Refusal(R"({"__metadata__":{"format":"pt"},)"
                    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("z":{"dtype":"F32","shape":[0,4],)"
                    R"("data_offsets":[8,8]}}   )",
                    8),
            "");
  EXPECT_EQ(Refusal(One("I64", "[]", "[0,8]"), 8), "");
}

TEST(SafetensorsTest, ReadsEveryPlainType) {
  const TempDir dir;
  const std::string data = BytesOf<float>(-1.5f) +
                           BytesOf<uint16_t>(0x3c01) +  // F16 1+2^-10
                           BytesOf<uint16_t>(0x4049);   // BF16 3.140625
  const auto model = OpenModel(dir.Write(
      "m.safetensors",
      Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},)"
                  R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[6,8]}})",
                  data)));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::pair<const char*, float> expected[] = {
      {"a", -1.5f}, {"b", 1.0f + 0x1p-10f}, {"c", 3.140625f}};
  for (const auto& [name, value] : expected) {
    float wide = 0;
    ASSERT_TRUE((*model)->ReadF32(name, {0, 1, 0, 1}, &wide).ok());
    EXPECT_EQ(wide, value) << name;
    uint16_t narrow = 0;
    ASSERT_TRUE((*model)->ReadBf16(name, {0, 1, 0, 1}, &narrow).ok());
    EXPECT_EQ(narrow, F32ToBf16(value)) << name;
  }
}

TEST(SafetensorsTest, EveryDtypeOfTheFormatIsListed) {
  const std::pair<const char*, int> sizes[] = {
      {"BOOL", 4},        {"F4", 2},          {"F6_E2M3", 3}, {"F6_E3M2", 3},
      {"U8", 4},          {"I8", 4},          {"F8_E5M2", 4}, {"F8_E4M3", 4},
      {"F8_E4M3FNUZ", 4}, {"F8_E5M2FNUZ", 4}, {"F8_E8M0", 4}, {"I16", 8},
      {"U16", 8},         {"F16", 8},         {"BF16", 8},    {"I32", 16},
      {"U32", 16},        {"F32", 16},        {"C64", 32},    {"F64", 32},
      {"I64", 32},        {"U64", 32}};
  for (const auto& [name, bytes] : sizes) {
    const TempDir dir;
    const auto model = OpenModel(dir.Write(
        "m.safetensors", Safetensors(One(name, "[4]", Cat("[0,", bytes, "]")),
                                     std::string(bytes, '\0'))));
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    EXPECT_EQ(ToString((*model)->tensors()[0].dtype), name);
    EXPECT_EQ((*model)->tensors()[0].shape, std::vector<int64_t>{4});
  }
}

TEST(SafetensorsTest, ATensorOfAnUnknownDtypeIsOnlyRefusedWhenItIsRead) {
  const TempDir dir;
  const auto model = OpenModel(dir.Write(
      "m.safetensors", Safetensors(One("F5_X", "[8]", "[0,5]"), "12345")));
  ASSERT_TRUE(model.ok()) << model.status();
  const TensorInfo& info = (*model)->tensors()[0];
  EXPECT_EQ(info.dtype, DType::kUnknown);
  EXPECT_EQ(info.stored_bytes(), 5);
  float out = 0;
  EXPECT_THAT(Message((*model)->ReadF32("a", {0, 1, 0, 1}, &out)),
              HasSubstr("stored as 'F5_X'"));
  // Its bytes lie in the file like others'.
  EXPECT_THAT(Refusal(One("F5_X", "[8]", "[0,6]"), 5), HasSubstr("within"));
  EXPECT_THAT(Refusal(One("F5_X", "[8]", "[4,2]"), 5), HasSubstr("within"));
}

TEST(SafetensorsTest, WidensF64AndPowersOfTwo) {
  const TempDir dir;
  const auto model = OpenModel(dir.Write(
      "m.safetensors",
      Safetensors(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"F8_E8M0","shape":[3],)"
                  R"("data_offsets":[8,11]}})",
                  BytesOf(0.1) + std::string("\x7f\x82\0", 3))));
  ASSERT_TRUE(model.ok()) << model.status();
  float wide = 0;
  ASSERT_TRUE((*model)->ReadF32("a", {0, 1, 0, 1}, &wide).ok());
  EXPECT_EQ(wide, 0.1f);
  float powers[3] = {};
  ASSERT_TRUE((*model)->ReadF32("b", {0, 1, 0, 3}, powers).ok());
  EXPECT_EQ(powers[0], 1.0f);
  EXPECT_EQ(powers[1], 8.0f);
  EXPECT_EQ(powers[2], 0x1p-127f);
}

TEST(SafetensorsTest, RefusesToReadIntegersAsFloats) {
  const TempDir dir;
  const auto model = OpenModel(
      dir.Write("m.safetensors",
                Safetensors(One("I64", "[1]", "[0,8]"), std::string(8, '\0'))));
  ASSERT_TRUE(model.ok()) << model.status();
  float out = 0;
  const Status status = (*model)->ReadF32("a", {0, 1, 0, 1}, &out);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("I64"));
}

TEST(SafetensorsTest, RefusesAFileTooShortForItsLength) {
  EXPECT_THAT(Refusal("\x08\0\0"), HasSubstr("too short"));
}

TEST(SafetensorsTest, RefusesAHeaderLongerThanTheFile) {
  const std::string text = "{}";
  EXPECT_THAT(Refusal(BytesOf<uint64_t>(3) + text), HasSubstr("limit 2"));
  EXPECT_THAT(Refusal(BytesOf(std::numeric_limits<uint64_t>::max()) + text),
              HasSubstr("limit 2"));
}

TEST(SafetensorsTest, RefusesAHeaderAboveTheCap) {
  // A sparse file: it claims, and has, more than a hundred million bytes.
  const TempDir dir;
  const std::string path =
      dir.Write("model.safetensors", BytesOf<uint64_t>(100'000'001) + "{");
  ASSERT_EQ(::truncate(path.c_str(), 200'000'000), 0);
  const auto model = OpenModel(path);
  EXPECT_THAT(Message(model.status()), HasSubstr("limit 100000000"));
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNoObject) {
  EXPECT_THAT(Refusal(" {}", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(Refusal("[]", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(Refusal("{}{}", 0), HasSubstr("malformed"));
  EXPECT_THAT(Refusal(R"({"a":)", 0), HasSubstr("malformed"));
}

TEST(SafetensorsTest, RefusesInvalidUtf8) {
  EXPECT_THAT(Refusal("{\"\xff\":{}}", 0), HasSubstr("malformed"));
}

TEST(SafetensorsTest, RefusesDeepNestingWithoutRecursion) {
  EXPECT_THAT(Refusal("{\"a\":" + std::string(1'000'000, '['), 0),
              HasSubstr("unexpected array"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"dtype":)";
  EXPECT_THAT(Refusal(objects, 0), HasSubstr("unexpected object"));
}

TEST(SafetensorsTest, RefusesNumbersThatAreNoSizes) {
  EXPECT_THAT(Refusal(One("F32", "[-1]", "[0,4]"), 4), HasSubstr("negative"));
  EXPECT_THAT(Refusal(One("F32", "[1.0]", "[0,4]"), 4), HasSubstr("integer"));
  EXPECT_THAT(Refusal(One("F32", "[1]", "[0,4.5]"), 4), HasSubstr("integer"));
  EXPECT_THAT(Refusal(One("F32", "[1]", "[-4,4]"), 4), HasSubstr("negative"));
  EXPECT_THAT(Refusal(One("F32", "[1e400]", "[0,4]"), 4),
              HasSubstr("malformed"));
  EXPECT_THAT(Refusal(One("F32", "[18446744073709551615]", "[0,4]"), 4),
              HasSubstr("2^63-1"));
  EXPECT_THAT(Refusal(One("F32", "[null]", "[0,4]"), 4), HasSubstr("null"));
  EXPECT_THAT(Refusal(One("F32", R"(["1"])", "[0,4]"), 4), HasSubstr("string"));
}

TEST(SafetensorsTest, RefusesOffsetsThatGoBackOrBeyond) {
  EXPECT_THAT(Refusal(One("F32", "[1]", "[4,0]"), 4), HasSubstr("[4, 0]"));
  EXPECT_THAT(Refusal(One("F32", "[2]", "[0,8]"), 4), HasSubstr("[0, 8]"));
  EXPECT_THAT(Refusal(One("F32", "[1]", "[0,4,8]"), 4),
              HasSubstr("two offsets"));
  EXPECT_THAT(Refusal(One("F32", "[1]", "[0]"), 4), HasSubstr("two data"));
  EXPECT_THAT(
      Refusal(One("F32", "[1]", "[18446744073709551612,18446744073709551615]"),
              4),
      HasSubstr("not within"));
}

TEST(SafetensorsTest, RefusesShapesWhoseProductWraps) {
  // The product is 4 in 64 bits.
  EXPECT_THAT(
      Refusal(One("F32", "[4194305,4194305,211106198978564]", "[0,16]"), 16),
      HasSubstr("above 2^63-1"));
  EXPECT_THAT(Refusal(One("F32", "[4611686018427387905]", "[0,4]"), 4),
              HasSubstr("above 2^63-1"));
}

TEST(SafetensorsTest, RefusesASizeThatDiffersFromShapeTimesType) {
  EXPECT_THAT(Refusal(One("F32", "[3]", "[0,8]"), 8), HasSubstr("needs 12"));
}

TEST(SafetensorsTest, RefusesUnknownKeys) {
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4),
              HasSubstr("needs dtype"));
  EXPECT_THAT(Refusal(R"({"a":{"extra":1}})", 0), HasSubstr("unknown key"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","dtype":"F16"}})", 0),
              HasSubstr("duplicate key"));
  EXPECT_THAT(Refusal(R"({"a":1})", 0), HasSubstr("unexpected number"));
}

TEST(SafetensorsTest, RefusesMetadataThatIsNoMapOfStrings) {
  EXPECT_THAT(Refusal(R"({"__metadata__":{"a":1}})", 0),
              HasSubstr("'a' of __metadata__"));
}

TEST(SafetensorsTest, RefusesDuplicateNames) {
  EXPECT_THAT(
      Refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              8),
      HasSubstr("twice"));
}

TEST(SafetensorsTest, RefusesOverlapsHolesAndTrailingData) {
  const auto two = [](std::string_view first, std::string_view second) {
    return Cat(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)", first,
               R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)", second,
               "}}");
  };
  EXPECT_EQ(Refusal(two("[8,16]", "[0,8]"), 16), "");
  EXPECT_THAT(Refusal(two("[0,8]", "[4,12]"), 12), HasSubstr("overlapping"));
  EXPECT_THAT(Refusal(two("[0,8]", "[0,8]"), 8), HasSubstr("overlapping"));
  EXPECT_THAT(Refusal(two("[0,8]", "[12,20]"), 20), HasSubstr("hole"));
  EXPECT_THAT(Refusal(two("[4,12]", "[12,20]"), 20), HasSubstr("hole"));
  EXPECT_THAT(Refusal(two("[0,8]", "[8,16]"), 17), HasSubstr("file at"));
}

TEST(SafetensorsTest, AHundredThousandTensorsAreReadInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += Cat(i > 0 ? "," : "", R"("model.layers.)", i,
                  R"(":{"dtype":"F16","shape":[1],"data_offsets":[)", 2 * i,
                  ",", 2 * i + 2, "]}");
  }
  EXPECT_EQ(Refusal(header + "}", 200'000), "");
}

}  // namespace
}  // namespace sluice::weights
