#include "common/weights/safetensors_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::Safetensors;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

constexpr char kIndex[] =
    R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors",
                       "c": "2.safetensors"}})";

// A matrix longer than an outline's part of it, and a vector, first in the
// header and last in the data.
std::string FirstShard() {
  std::vector<float> values(2048 + 2000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  return Safetensors(
      R"({"b":{"dtype":"F32","shape":[2000],"data_offsets":[8192,16192]},)"
      R"("a":{"dtype":"F32","shape":[2,1024],"data_offsets":[0,8192]}})",
      BytesOf(values));
}

std::string HeaderOf(const std::string& shard) {
  uint64_t size = 0;
  shard.copy(reinterpret_cast<char*>(&size), sizeof(size));
  return shard.substr(sizeof(size), size);
}

std::string Outline(const std::string& shard) {
  const std::string header = HeaderOf(shard);
  std::string outline = shard.substr(0, sizeof(uint64_t) + header.size());
  const auto pieces = OutlineOf("1.safetensors", header, shard.size());
  for (const ShardBytes& piece : *pieces) {
    outline += shard.substr(piece.begin, piece.size);
  }
  return outline;
}

// Writes a model whose first shard is a file of this name and bytes.
void WriteModel(const TempDir& dir, std::string_view name,
                std::string_view first) {
  dir.Write("config.json", "{}");
  dir.Write("model.safetensors.index.json", kIndex);
  dir.Write(name, first);
  dir.Write(
      "2.safetensors",
      Safetensors(R"({"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  BytesOf(7.0f)));
}

TEST(SafetensorsOutlineTest, AModelWithAnOutlineIsTheSameModel) {
  const TempDir whole, outlined;
  WriteModel(whole, "1.safetensors", FirstShard());
  WriteModel(outlined, "1.safetensors.outline", Outline(FirstShard()));
  const auto a = OpenModel(whole.path()), b = OpenModel(outlined.path());
  ASSERT_TRUE(a.ok()) << Message(a.status());
  ASSERT_TRUE(b.ok()) << Message(b.status());
  EXPECT_EQ(*ComputeIdentity(**a), *ComputeIdentity(**b));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ((*b)->Find(name)->shape, (*a)->Find(name)->shape);
    EXPECT_EQ((*b)->StoredBytes(name), (*a)->StoredBytes(name));
  }
}

TEST(SafetensorsOutlineTest, VectorsAreReadAndMatricesRefused) {
  const TempDir dir;
  WriteModel(dir, "1.safetensors.outline", Outline(FirstShard()));
  const auto model = OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  std::vector<float> vector(2000);
  ASSERT_TRUE((*model)->ReadF32("b", {0, 1, 0, 2000}, vector.data()).ok());
  EXPECT_EQ(vector[0], 2048);
  EXPECT_EQ(vector[1999], 2048 + 1999);
  float one = 0;
  EXPECT_TRUE((*model)->ReadF32("c", {0, 1, 0, 1}, &one).ok());
  EXPECT_EQ(one, 7);
  const Status refused = (*model)->ReadF32("a", {0, 1, 0, 1}, &one);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("1.safetensors.outline"));
  EXPECT_THAT(Message(refused), HasSubstr("sluice pull --layers"));
}

TEST(SafetensorsOutlineTest, MatricesAreRepeatedWhereThatIsAskedFor) {
  const TempDir dir;
  WriteModel(dir, "1.safetensors.outline", Outline(FirstShard()));
  const auto model = OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  (*model)->SetOutlineReads(OutlineReads::kRepeat);
  std::vector<float> all(2048);
  ASSERT_TRUE((*model)->ReadF32("a", {0, 2, 0, 1024}, all.data()).ok());
  // The first row is the outline's, the second has its elements in other
  // places.
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(all[i], i);
  std::vector<float> row(all.begin() + 1024, all.end());
  EXPECT_NE(row[0], 0);
  std::sort(row.begin(), row.end());
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(row[i], i);
  // Any cut gives the same elements.
  std::vector<float> part(2 * 100);
  ASSERT_TRUE((*model)->ReadF32("a", {0, 2, 700, 800}, part.data()).ok());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(part[i], all[700 + i]);
    EXPECT_EQ(part[100 + i], all[1024 + 700 + i]);
  }
}

TEST(SafetensorsOutlineTest, TheShardItselfGoesFirst) {
  const TempDir dir;
  WriteModel(dir, "1.safetensors", FirstShard());
  dir.Write("1.safetensors.outline", "noise");
  const auto model = OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  float one = 0;
  EXPECT_TRUE((*model)->ReadF32("a", {1, 2, 1023, 1024}, &one).ok());
  EXPECT_EQ(one, 2047);
}

TEST(SafetensorsOutlineTest, OutlinesOfAnotherLengthAreRefused) {
  const std::string outline = Outline(FirstShard());
  for (const std::string& bytes :
       {outline + "x", outline.substr(0, outline.size() - 1), FirstShard(),
        std::string("noise")}) {
    const TempDir dir;
    WriteModel(dir, "1.safetensors.outline", bytes);
    EXPECT_EQ(OpenModel(dir.path()).status().code(),
              StatusCode::kInvalidArgument);
  }
  const std::string header = HeaderOf(FirstShard());
  for (const uint64_t size : {FirstShard().size() - 1, size_t{8}}) {
    EXPECT_FALSE(OutlineOf("1.safetensors", header, size).ok()) << size;
  }
  EXPECT_FALSE(OutlineOf("1.safetensors", "[]", 100).ok());
}

}  // namespace
}  // namespace sluice::weights
