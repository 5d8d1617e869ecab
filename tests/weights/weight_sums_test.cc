#include "common/weights/weight_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "common/weights/xxh64.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using ::testing::AllOf;
using testing::BytesOf;
using ::testing::HasSubstr;
using testing::Safetensors;
using testing::TempDir;
using testing::TinyLlama;

// One F32 tensor "w" of [rows, 1024] beside a small one, as a file alone.
constexpr int64_t kCols = 1024;
constexpr int64_t kRows = 700;  // 2.7 pieces
constexpr size_t kDataBytes = kRows * kCols * 4;

std::string Data() {
  std::string data(kDataBytes, '\0');
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<char>(i % 4 == 3 ? 0x3f : i / 1000);
  }
  return data;
}

std::string FileOf(const std::string& data) {
  return Safetensors(
      Cat(R"({"b":{"dtype":"F32","shape":[2],)",
          R"("data_offsets":[0,8]},"w":{"dtype":"F32",)", R"("shape":[)", kRows,
          ",", kCols, R"(],"data_offsets":[8,)", 8 + kDataBytes, "]}}"),
      BytesOf<uint64_t>(7) + data);
}

std::unique_ptr<ModelFile> Open(const std::string& path) {
  auto model = sluice::OpenModel(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

void WriteSums(const std::string& path) {
  const auto model = Open(path);
  const auto digest = ComputeIdentity(*model);
  const auto sums = ComputeWeightSums(*model, *digest);
  ASSERT_TRUE(sums.ok()) << sums.status();
  ASSERT_TRUE(WriteWeightSums(*model, *sums).ok());
}

// The model at `path`, to be checked against the sums beside it.
Status Use(const std::string& path, std::unique_ptr<ModelFile>* opened) {
  *opened = Open(path);
  return UseWeightSums(**opened, *ComputeIdentity(**opened));
}

TEST(Xxh64Test, GivesWhatTheReferenceImplementationGives) {
  std::string data;
  for (int i = 0; i < 101; ++i) data += static_cast<char>(i * 7 + 3);
  const std::vector<std::pair<size_t, uint64_t>> known = {
      {0, 0xef46db3751d8e999},   {1, 0x1f25c8d0bc1f4bb6},
      {3, 0x31d2363f52e564c9},   {4, 0x9bb64b7d66ee9fda},
      {7, 0x9a7b149959ce60d8},   {8, 0xdab99d95c6f90092},
      {12, 0xd52e407833af5133},  {31, 0xa2aa5f33cc4a6119},
      {32, 0x23c3c17ef790fd97},  {33, 0x50a7cfc7ba588784},
      {63, 0x5e3e54b431c7493c},  {64, 0x0eb64b3ef6eeb01f},
      {100, 0xa61f8d4c170fe531}, {101, 0xbad4d3bf033bda4c}};
  for (const auto& [size, sum] : known) {
    EXPECT_EQ(Xxh64(data.data(), size), sum) << size;
  }
  EXPECT_EQ(Xxh64("abc", 3), 0x44bc2cf5ad770999);
}

TEST(WeightSumsTest, AreOfPiecesOfTheStoredBytesAndReadBackAsWritten) {
  const TempDir dir;
  const std::string data = Data();
  const std::string path = dir.Write("m.safetensors", FileOf(data));
  const auto model = Open(path);
  const auto sums = ComputeWeightSums(*model, *ComputeIdentity(*model));
  ASSERT_TRUE(sums.ok()) << sums.status();
  ASSERT_EQ(sums->tensors.size(), 2u);
  const TensorSums& w = sums->tensors[1];
  EXPECT_EQ(w.file, "m.safetensors");
  ASSERT_EQ(w.pieces.size(), 3u);
  EXPECT_EQ(w.pieces[1], Xxh64(data.data() + kSumPieceBytes, kSumPieceBytes));
  EXPECT_EQ(w.pieces[2], Xxh64(data.data() + 2 * kSumPieceBytes,
                               kDataBytes - 2 * kSumPieceBytes));
  EXPECT_EQ(w.sum(), Xxh64(w.pieces.data(), 24));  // little-endian here
  const auto again = ParseWeightSums(ToText(*sums));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *sums);
  ASSERT_TRUE(WriteWeightSums(*model, *sums).ok());
  EXPECT_EQ(model->sums_path(), path + ".sluice.sums");
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry;
  }
}

// A link that another user left where the draft goes leads nowhere.
TEST(WeightSumsTest, TheDraftIsANewFile) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", FileOf(Data()));
  const std::string victim = dir.Write("victim", "precious");
  const std::string draft = path + ".sluice.sums.tmp";
  for (const std::string& name : {draft, Cat(draft, ".", ::getpid())}) {
    std::filesystem::create_symlink(victim, name);
  }
  WriteSums(path);
  EXPECT_EQ(std::filesystem::file_size(victim), 8u);
  EXPECT_TRUE(std::filesystem::is_regular_file(
      std::filesystem::symlink_status(path + ".sluice.sums")));
}

// Whatever is read of a damaged piece, however it is cut.
TEST(WeightSumsTest, ADamagedPieceIsRefusedAndTheOthersAreRead) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", FileOf(Data()));
  WriteSums(path);
  std::string data = Data();
  const int64_t row = 400;  // of the second piece
  data[static_cast<size_t>(row) * kCols * 4 + 17] ^= 0x04;
  dir.Write("m.safetensors", FileOf(data));
  std::vector<float> out(kRows * kCols);
  const std::vector<std::pair<Slice, bool>> slices = {
      {{0, 256, 0, kCols}, true},         // the first piece
      {{512, kRows, 0, kCols}, true},     // the last
      {{0, kRows, 0, kCols}, false},      // all
      {{row, row + 1, 0, kCols}, false},  // a row
      {{256, 257, 0, 8}, false},          // another one's part
      {{0, kRows, 1000, kCols}, false},   // columns
      {{0, 256, 1000, kCols}, true},      // columns of the first
      {{255, 256, 0, kCols}, true}};
  for (const auto& [slice, good] : slices) {
    std::unique_ptr<ModelFile> model;
    ASSERT_TRUE(Use(path, &model).ok());
    const Status status = model->ReadF32("w", slice, out.data());
    EXPECT_EQ(status.ok(), good) << slice.row_begin << " " << status;
    std::vector<uint16_t> narrow(out.size());
    EXPECT_EQ(model->ReadBf16("w", slice, narrow.data()).ok(), good);
    if (good) continue;
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("tensor 'w'"), HasSubstr(path),
                      HasSubstr("bytes [1048576, 2097152)"),
                      HasSubstr(SumToHex(
                          Xxh64(data.data() + kSumPieceBytes, kSumPieceBytes))),
                      HasSubstr(SumToHex(Xxh64(Data().data() + kSumPieceBytes,
                                               kSumPieceBytes)))));
  }
  // Of a good piece that was checked, any part is read again.
  std::unique_ptr<ModelFile> model;
  ASSERT_TRUE(Use(path, &model).ok());
  for (const Slice& slice : {Slice{3, 5, 7, 90}, Slice{0, 256, 0, kCols}}) {
    ASSERT_TRUE(model->ReadF32("w", slice, out.data()).ok());
    float wanted = 0;
    std::memcpy(&wanted,
                data.data() + (slice.row_begin * kCols + slice.col_begin) * 4,
                4);
    EXPECT_EQ(out[0], wanted);
  }
}

TEST(WeightSumsTest, AHoleAndAHalfCopiedFileAreRefused) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", FileOf(Data()));
  WriteSums(path);
  std::vector<float> out(kRows * kCols);
  std::string half = FileOf(Data());
  std::fill(half.begin() + static_cast<std::ptrdiff_t>(half.size() / 2),
            half.end(), '\0');
  dir.Write("m.safetensors", half);
  std::unique_ptr<ModelFile> model;
  ASSERT_TRUE(Use(path, &model).ok());
  const Slice all = Slice::All(*model->Find("w"));
  EXPECT_THAT(Message(model->ReadF32("w", all, out.data())),
              HasSubstr("tensor 'w'"));
}

TEST(WeightSumsTest, DamageWithinTheDigestsSampleIsNamedToo) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", FileOf(Data()));
  WriteSums(path);
  std::string data = Data();
  data[100] ^= 1;
  dir.Write("m.safetensors", FileOf(data));
  std::unique_ptr<ModelFile> model;
  const Status status = Use(path, &model);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("tensor 'w'"));
}

TEST(WeightSumsTest, PermutedRowsOfAGgufAreCheckedAsTheyAreStored) {
  const TempDir dir;
  const std::string path = dir.Write("tiny.gguf", TinyLlama().Build());
  WriteSums(path);
  for (const std::string& opened : {path, dir.path()}) {
    std::unique_ptr<ModelFile> model;
    ASSERT_TRUE(Use(opened, &model).ok());
    EXPECT_EQ(model->sums_path(), path + ".sluice.sums");
    for (const TensorInfo& info : model->tensors()) {
      std::vector<float> out(static_cast<size_t>(info.elements()));
      EXPECT_TRUE(model->ReadF32(info.name, Slice::All(info), out.data()).ok());
    }
  }
}

TEST(WeightSumsTest, SumsOfAnotherModelAreRefused) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", FileOf(Data()));
  const auto model = Open(path);
  const auto good = ComputeWeightSums(*model, *ComputeIdentity(*model));
  ASSERT_TRUE(good.ok());
  const auto refusal = [&](const std::function<void(WeightSums&)>& change) {
    WeightSums sums = *good;
    change(sums);
    EXPECT_TRUE(WriteWeightSums(*model, sums).ok());
    std::unique_ptr<ModelFile> opened;
    const Status status = Use(path, &opened);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr(path + ".sluice.sums: "),
                      HasSubstr("`sluice inspect MODEL --sums`")));
    return Message(status);
  };
  EXPECT_THAT(refusal([](WeightSums& s) { s.tensors.pop_back(); }),
              HasSubstr("lacks tensor 'w'"));
  EXPECT_THAT(
      refusal([](WeightSums& s) { s.tensors.erase(s.tensors.begin()); }),
      HasSubstr("lacks tensor 'b'"));
  EXPECT_THAT(refusal([](WeightSums& s) { s.tensors[1].name = "x"; }),
              HasSubstr("lacks tensor 'w'"));
  EXPECT_THAT(refusal([](WeightSums& s) { s.tensors[1].name = "c"; }),
              HasSubstr("has tensor 'c'"));
  EXPECT_THAT(refusal([](WeightSums& s) { s.tensors[0].bytes = 4; }),
              HasSubstr("has 4 bytes of tensor 'b', the model 8"));
  const std::string other(64, 'f');
  EXPECT_THAT(refusal([&](WeightSums& s) { s.model = other; }),
              HasSubstr("a model with the digest " + other));
}

TEST(WeightSumsTest, TextThatIsNoSumsIsRefused) {
  const TempDir dir;
  const auto model = Open(dir.Write("m.safetensors", FileOf(Data())));
  const auto sums = ComputeWeightSums(*model, *ComputeIdentity(*model));
  const std::string text = ToText(*sums);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const auto parsed = ParseWeightSums(changed);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << changed;
    return Message(parsed.status());
  };
  EXPECT_THAT(refusal("sums 1", "sums 2"), HasSubstr("format is"));
  EXPECT_THAT(refusal("xxh64", "crc32"), HasSubstr("hash is"));
  EXPECT_THAT(refusal("1048576", "1"), HasSubstr("piece_bytes is 1"));
  EXPECT_THAT(refusal("\"model\"", "\"modem\""), HasSubstr("model is missing"));
  const std::string& id = sums->model;
  for (const std::string& other :
       {id.substr(1), id + "0", "G" + id.substr(1), "\\\"" + id.substr(1)}) {
    EXPECT_THAT(refusal(id, other),
                AllOf(HasSubstr("model is "), HasSubstr("64 hexadecimal")));
  }
  EXPECT_THAT(refusal("\"bytes\": 8", "\"bytes\": -8"),
              HasSubstr("tensor 'b': bytes is missing or no number"));
  EXPECT_THAT(refusal("\"bytes\": 8", "\"bytes\": 18446744073709551615"),
              HasSubstr("pieces"));
  EXPECT_THAT(refusal("\"name\": \"b\"", "\"name\": \"w\""),
              HasSubstr("tensor 'w' is listed twice"));
  const std::string b = SumToHex(sums->tensors[0].pieces[0]);
  EXPECT_THAT(refusal(b, b.substr(1)), HasSubstr("tensor 'b': pieces has 15"));
  EXPECT_THAT(refusal(b, "g" + b.substr(1)), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal(b, b + b), HasSubstr("has 2 pieces"));
  EXPECT_THAT(refusal(b, b.substr(8) + b.substr(0, 8)),
              HasSubstr("its sum is not that of its pieces"));
  for (const char* other : {"", "[]", "3", "{}", "{\"format\": 1}"}) {
    EXPECT_FALSE(ParseWeightSums(other).ok()) << other;
  }
}

}  // namespace
}  // namespace sluice::weights
