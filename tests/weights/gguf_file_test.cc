#include "common/weights/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/cat.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::GgufBuilder;
using sluice::testing::GgufString;
using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kTypeF32 = 0;
constexpr uint32_t kTypeQ4_0 = 2;

StatusOr<GgufHeader> Parse(const std::string& bytes) {
  const TempDir dir;
  auto file = RandomAccessFile::Open(dir.Write("m.gguf", bytes));
  if (!file.ok()) return file.status();
  return ReadGgufHeader(**file);
}

// What parsing answers; "" if it succeeds.
std::string Refusal(const std::string& bytes) {
  const auto header = Parse(bytes);
  if (header.ok()) return "";
  EXPECT_EQ(header.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(header.status()), HasSubstr("m.gguf"));
  return Message(header.status());
}

std::string Refusal(const GgufBuilder& gguf) { return Refusal(gguf.Build()); }

TEST(GgufFileTest, AnIntegerAboveTheRangeIsAFaultOfWhoReadsItAlone) {
  const auto header =
      Parse(GgufBuilder()
                .Key("large", 10, BytesOf<uint64_t>(kHuge))
                .Array("list", 10, 2, BytesOf(std::vector<uint64_t>{1, kHuge}))
                .Array("small", 10, 1, BytesOf(std::vector<uint64_t>{1}))
                .Build());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(Message(header->metadata.Int("large").status()),
              HasSubstr("'large' is of type uint64 above 2^63-1"));
  EXPECT_THAT(Message(header->metadata.Ints("list").status()),
              HasSubstr("'list' is of type uint64 above 2^63-1"));
  EXPECT_THAT(*header->metadata.Ints("small"), ElementsAre(1));
}

TEST(GgufFileTest, ABigEndianFileIsNamedSo) {
  GgufBuilder gguf;
  gguf.version = 3u << 24;
  EXPECT_THAT(Refusal(gguf), HasSubstr("big-endian"));
}

TEST(GgufFileTest, GivesMetadataByItsType) {
  const auto header =
      Parse(GgufBuilder()
                .Text("name", "sluice")
                .U32("u32", 7)
                .Key("i8", 1, BytesOf<int8_t>(-3))
                .Key("u64", 10, BytesOf<uint64_t>(1))
                .F32("f32", 0.5f)
                .Key("f64", 12, BytesOf(0.25))
                .Key("bool", 7, BytesOf<uint8_t>(1))
                .Array("strings", 8, 2, GgufString("a") + GgufString(""))
                .Array("ints", 5, 2, BytesOf(std::vector<int32_t>{-1, 2}))
                .Array("floats", 6, 1, BytesOf(1.5f))
                .Array("bytes", 0, 2, BytesOf(std::vector<uint8_t>{1, 255}))
                .Array("none", 8, 0, "")
                .Build());
  ASSERT_TRUE(header.ok()) << header.status();
  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(*metadata.String("name"), "sluice");
  EXPECT_EQ(*metadata.Int("u32"), 7);
  EXPECT_EQ(*metadata.Int("i8"), -3);
  EXPECT_EQ(*metadata.Int("u64"), 1);
  EXPECT_EQ(*metadata.Float("f32"), 0.5);
  EXPECT_EQ(*metadata.Float("f64"), 0.25);
  EXPECT_EQ(*metadata.Bool("bool"), true);
  EXPECT_THAT(*metadata.Strings("strings"), ElementsAre("a", ""));
  EXPECT_THAT(*metadata.Ints("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*metadata.Floats("floats"), ElementsAre(1.5));
  EXPECT_THAT(*metadata.Ints("bytes"), ElementsAre(1, 255));
  EXPECT_THAT(*metadata.Strings("none"), ElementsAre());
}

TEST(GgufFileTest, AKeyOfAnotherTypeIsNeverCast) {
  const auto header =
      Parse(GgufBuilder()
                .Array("tokenizer.ggml.scores", 0, 4, BytesOf(1.0f))
                .U32("u32", 7)
                .Build());
  ASSERT_TRUE(header.ok()) << header.status();
  const auto scores = header->metadata.Floats("tokenizer.ggml.scores");
  EXPECT_EQ(scores.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(scores.status()), HasSubstr("array of uint8"));
  EXPECT_FALSE(header->metadata.Float("u32").ok());
  EXPECT_FALSE(header->metadata.String("u32").ok());
  EXPECT_FALSE(header->metadata.Ints("u32").ok());
  EXPECT_EQ(header->metadata.Int("absent").status().code(),
            StatusCode::kNotFound);
}

TEST(GgufFileTest, GivesTensorsSlowestDimensionFirst) {
  const auto header =
      Parse(GgufBuilder()
                .Tensor("a", {32, 3}, kTypeQ4_0, std::string(54, '\0'))
                .Tensor("b", {2}, kTypeF32, std::string(8, '\0'))
                .Build());
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(3, 32));
  EXPECT_EQ(header->tensors[0].dtype, DType::kQ4_0);
  EXPECT_EQ(header->tensors[0].bytes, 54u);
  EXPECT_EQ(header->tensors[1].offset, header->tensors[0].offset + 64);
}

TEST(GgufFileTest, AcceptsVersionsTwoAndThreeOnly) {
  GgufBuilder gguf;
  for (const uint32_t version : {2u, 3u}) {
    gguf.version = version;
    EXPECT_EQ(Refusal(gguf), "");
  }
  for (const uint32_t version : {0u, 1u, 4u, 0x04000000u}) {
    gguf.version = version;
    EXPECT_THAT(Refusal(gguf), HasSubstr("version"));
  }
}

TEST(GgufFileTest, RefusesOtherFilesAndEveryTruncation) {
  EXPECT_THAT(Refusal("GGML and more"), HasSubstr("not a GGUF"));
  EXPECT_THAT(Refusal(""), HasSubstr("magic"));
  const std::string whole =
      GgufBuilder()
          .Text("key", "value")
          .Array("array", 8, 1, GgufString("element"))
          .Tensor("a", {4}, kTypeF32, std::string(16, '\0'))
          .Build();
  ASSERT_EQ(Refusal(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(Refusal(whole.substr(0, size)), "") << size;
  }
}

TEST(GgufFileTest, RefusesCountsBeyondTheFile) {
  GgufBuilder gguf;
  gguf.Text("key", "value");
  for (const uint64_t count :
       {uint64_t{9}, uint64_t{1} << 32, uint64_t{1} << 59, kHuge - 1}) {
    gguf.extra_keys = count;
    gguf.extra_tensors = 0;
    EXPECT_THAT(Refusal(gguf), HasSubstr("metadata keys")) << count;
    gguf.extra_keys = 0;
    gguf.extra_tensors = count;
    EXPECT_THAT(Refusal(gguf), HasSubstr("tensors")) << count;
  }
}

TEST(GgufFileTest, RefusesStringLengthsBeyondTheFile) {
  for (const uint64_t length : {uint64_t{100}, kHuge, kHuge - 7}) {
    EXPECT_THAT(Refusal(GgufBuilder().Key("k", 8, BytesOf(length) + "abc")),
                HasSubstr(Cat("of ", length, " bytes")));
  }
  EXPECT_THAT(Refusal(GgufBuilder().U32(std::string(2000, 'k'), 1)),
              HasSubstr("limit 1024"));
}

TEST(GgufFileTest, RefusesArraysBeyondTheFile) {
  for (const uint64_t count :
       {uint64_t{1000}, uint64_t{1} << 62, (uint64_t{1} << 62) + 1, kHuge}) {
    for (const uint32_t type : {0u, 5u, 6u, 8u, 12u}) {
      EXPECT_THAT(Refusal(GgufBuilder().Array("k", type, count, "abc")),
                  HasSubstr("elements of key 'k'"));
    }
  }
}

TEST(GgufFileTest, RefusesNestedArraysAndUnknownTypes) {
  EXPECT_THAT(Refusal(GgufBuilder().Array("k", 9, 1, std::string(64, '\0'))),
              HasSubstr("nested"));
  EXPECT_THAT(Refusal(GgufBuilder().Array("k", 13, 1, std::string(64, '\0'))),
              HasSubstr("type 13"));
  EXPECT_THAT(Refusal(GgufBuilder().Key("k", 77, std::string(64, '\0'))),
              HasSubstr("type 77"));
}

TEST(GgufFileTest, RefusesDuplicateKeysAndTensors) {
  EXPECT_THAT(Refusal(GgufBuilder().U32("k", 1).U32("k", 2)),
              HasSubstr("duplicate metadata key 'k'"));
  EXPECT_THAT(Refusal(GgufBuilder()
                          .Tensor("a", {8}, kTypeF32, std::string(32, 'x'))
                          .Tensor("a", {8}, kTypeF32, std::string(32, 'x'))),
              HasSubstr("twice"));
}

TEST(GgufFileTest, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 17, 0xffffffffu}) {
    EXPECT_THAT(Refusal(GgufBuilder().U32("general.alignment", alignment)),
                HasSubstr("general.alignment"));
  }
  EXPECT_THAT(Refusal(GgufBuilder().Text("general.alignment", "32")),
              HasSubstr("of type string"));
  EXPECT_EQ(Refusal(GgufBuilder().U32("general.alignment", 8)), "");
}

TEST(GgufFileTest, RefusesDimensionsOutOfRange) {
  EXPECT_THAT(Refusal(GgufBuilder()
                          .TensorAt("a", {}, kTypeF32, 0)
                          .Text("room", std::string(64, ' '))),
              HasSubstr("0 dimensions"));
  EXPECT_THAT(
      Refusal(GgufBuilder().TensorAt("a", {1, 1, 1, 1, 1}, kTypeF32, 0)),
      HasSubstr("5 dimensions"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("a", {4, 0}, kTypeF32, 0)),
              HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("a", {kHuge}, kTypeF32, 0)),
              HasSubstr("limits 1"));
}

TEST(GgufFileTest, RefusesSizesThatWrap) {
  const uint64_t big = uint64_t{1} << 33;
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("a", {big, big}, kTypeF32, 0)),
              HasSubstr("2^63-1"));
  EXPECT_THAT(
      Refusal(GgufBuilder().TensorAt("a", {uint64_t{1} << 62}, kTypeF32, 0)),
      HasSubstr("2^63-1"));
  // Its bytes would wrap only after the division by the block.
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt(
                  "a", {uint64_t{1} << 40, uint64_t{1} << 22}, 8, 0)),
              HasSubstr("beyond the file's end"));
}

TEST(GgufFileTest, RefusesRowsThatAreNoWholeBlocks) {
  EXPECT_THAT(Refusal(GgufBuilder().Tensor("a", {33}, kTypeQ4_0,
                                           std::string(64, '\0'))),
              HasSubstr("block of 32"));
}

TEST(GgufFileTest, RefusesUnknownTensorTypes) {
  for (const uint32_t type : {4u, 31u, 99u, 0xffffffffu}) {
    EXPECT_THAT(Refusal(GgufBuilder().Tensor("a", {256}, type,
                                             std::string(1024, '\0'))),
                HasSubstr(Cat("type id ", type)));
  }
}

TEST(GgufFileTest, RefusesOffsetsBeyondUnalignedOrOverlapping) {
  const std::string data(64, '\0');
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("a", {8}, kTypeF32, 32)),
              HasSubstr("beyond the file's end"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("a", {8}, kTypeF32, kHuge - 31)),
              HasSubstr("beyond the file's end"));
  EXPECT_THAT(Refusal(GgufBuilder()
                          .Tensor("a", {8}, kTypeF32, data)
                          .TensorAt("b", {1}, kTypeF32, 33)),
              HasSubstr("multiple of the alignment"));
  EXPECT_THAT(Refusal(GgufBuilder()
                          .Tensor("a", {16}, kTypeF32, data)
                          .TensorAt("b", {8}, kTypeF32, 32)),
              HasSubstr("overlap"));
}

}  // namespace
}  // namespace sluice::weights
