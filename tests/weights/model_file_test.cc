#include "common/weights/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/weights/find_model.h"
#include "common/weights/gguf_file.h"
#include "tests/testing/default_model.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::GgufBuilder;
using sluice::testing::Safetensors;
using sluice::testing::TempDir;
using sluice::testing::TinyLlama;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> ReadAll(const ModelFile& model, std::string_view name) {
  const TensorInfo* info = model.Find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<float> out(static_cast<size_t>(info->elements()));
  const Status status = model.ReadF32(name, Slice::All(*info), out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Slices of all kinds hold what the whole tensor holds there.
void ExpectSlicesEqualWhole(const ModelFile& model, std::string_view name) {
  const TensorInfo& info = *model.Find(name);
  const std::vector<float> whole = ReadAll(model, name);
  const int64_t rows = info.rows(), cols = info.cols();
  const Slice slices[] = {
      Slice::Rows(info, rows / 3, rows),
      Slice::Cols(info, cols / 4, cols / 2),
      {rows / 2, rows / 2 + 1, cols - 1, cols},
      {0, rows / 2, 1, cols - 1},
      {rows, rows, 0, cols},
  };
  for (const Slice& slice : slices) {
    std::vector<float> wide(static_cast<size_t>(slice.elements()));
    std::vector<uint16_t> narrow(wide.size());
    ASSERT_TRUE(model.ReadF32(name, slice, wide.data()).ok());
    ASSERT_TRUE(model.ReadBf16(name, slice, narrow.data()).ok());
    size_t i = 0;
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      for (int64_t col = slice.col_begin; col < slice.col_end; ++col, ++i) {
        ASSERT_EQ(wide[i], whole[static_cast<size_t>(row * cols + col)])
            << name << " row " << row << " column " << col;
        ASSERT_EQ(narrow[i], F32ToBf16(wide[i]));
      }
    }
  }
}

// A folder with config.json and one F32 tensor per given shard.
void WriteShard(const TempDir& dir, std::string_view file,
                std::string_view tensor, float value) {
  dir.Write(file,
            Safetensors(Cat(R"({")", tensor, R"(":{"dtype":"F32","shape":[1],)",
                            R"("data_offsets":[0,4]}})"),
                        BytesOf(value)));
}

TEST(ModelFileTest, OpensEveryGoldenModel) {
  const std::vector<std::string> names = testing::GoldenModelNames();
  EXPECT_GE(names.size(), 10u);
  for (const std::string& name : names) {
    const std::string path = testing::GoldenModel(name);
    const auto model = sluice::OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE((*model)->config().contains("model_type")) << path;
    EXPECT_TRUE((*model)->generation_config().contains("eos_token_id"));
    EXPECT_GE((*model)->tensors().size(), 20u) << path;
  }
}

TEST(ModelFileTest, ReadsShardsThroughTheIndex) {
  const std::string path = testing::GoldenModel("llama2-bf16-sharded");
  const auto model = sluice::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), 3u + 3 * 9);
  for (const TensorInfo& info : (*model)->tensors()) {
    EXPECT_EQ(info.dtype, DType::kBF16) << info.name;
    if (info.shape.size() == 2) ExpectSlicesEqualWhole(**model, info.name);
  }
}

TEST(ModelFileTest, SlicesOfQuantisedAndPermutedTensorsEqualTheWhole) {
  SLUICE_REQUIRE_SMOLLM2(path);
  const auto model = sluice::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.29.self_attn.k_proj.weight",
        "model.layers.7.self_attn.v_proj.weight",
        "model.layers.3.mlp.down_proj.weight"}) {
    ExpectSlicesEqualWhole(**model, name);
  }
}

TEST(ModelFileTest, GgufOfLlamaGetsConfigAndNamesOfHuggingFace) {
  const TempDir dir;
  const auto model =
      sluice::OpenModel(dir.Write("tiny.gguf", TinyLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  const Json& config = (*model)->config();
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["hidden_size"], 8);
  EXPECT_EQ(config["num_hidden_layers"], 2);
  EXPECT_EQ(config["num_attention_heads"], 2);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["intermediate_size"], 12);
  EXPECT_EQ(config["vocab_size"], 6);
  EXPECT_EQ(config["rms_norm_eps"], 1e-5);
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_TRUE(config["rope_scaling"].is_null());
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["eos_token_id"], Json::array({2}));
  EXPECT_EQ((*model)->generation_config(), Json::object());
  ASSERT_NE((*model)->gguf(), nullptr);
  EXPECT_TRUE((*model)->gguf()->Has("llama.block_count"));
  EXPECT_THAT((*model)->Find("model.layers.1.mlp.down_proj.weight")->shape,
              ElementsAre(8, 12));
}

TEST(ModelFileTest, QueryAndKeyRowsComeInHalfSplitOrder) {
  const TempDir dir;
  const auto model =
      sluice::OpenModel(dir.Write("tiny.gguf", TinyLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  // head_dim 4: the model's rows 0 1 2 3 are the file's 0 2 1 3.
  const auto query = ReadAll(**model, "model.layers.0.self_attn.q_proj.weight");
  const float first = query[0];
  std::vector<float> rows;
  for (size_t row = 0; row < 8; ++row) rows.push_back(query[8 * row] - first);
  EXPECT_THAT(rows, ElementsAre(0, 16, 8, 24, 32, 48, 40, 56));
  const auto value = ReadAll(**model, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(value[8] - value[0], 8);
  ExpectSlicesEqualWhole(**model, "model.layers.0.self_attn.q_proj.weight");
  ExpectSlicesEqualWhole(**model, "model.layers.1.self_attn.k_proj.weight");
}

TEST(ModelFileTest, RopeDivisorsOfAGgufStandInTheConfig) {
  const TempDir dir;
  const auto model = sluice::OpenModel(dir.Write(
      "tiny.gguf", TinyLlama()
                       .Tensor("rope_freqs.weight", {2}, 0,
                               BytesOf(std::vector<float>{1.0f, 32.0f}))
                       .Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config()["rope_scaling"]["rope_type"], "divisors");
  EXPECT_EQ((*model)->config()["rope_scaling"]["divisors"],
            Json::array({1.0, 32.0}));
}

TEST(ModelFileTest, OtherGgufArchitecturesAreListedUnderTheirOwnNames) {
  const TempDir dir;
  const auto model = sluice::OpenModel(
      dir.Write("m.gguf", GgufBuilder()
                              .Text("general.architecture", "qwen9")
                              .Tensor("blk.0.x", {1}, 0, BytesOf(1.0f))
                              .Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config()["model_type"], "gguf qwen9");
  EXPECT_NE((*model)->Find("blk.0.x"), nullptr);
}

TEST(ModelFileTest, GgufMetadataThatContradictsIsRefused) {
  const TempDir dir;
  const auto refusal = [&](GgufBuilder gguf) {
    const auto model = sluice::OpenModel(dir.Write("tiny.gguf", gguf.Build()));
    EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
    return Message(model.status());
  };
  EXPECT_THAT(refusal(GgufBuilder()), HasSubstr("general.architecture"));
  EXPECT_THAT(refusal(GgufBuilder().Text("general.architecture", "llama")),
              HasSubstr("llama.embedding_length"));
  EXPECT_THAT(refusal(TinyLlama().U32("llama.rope.dimension_count", 2)),
              HasSubstr("llama.rope.dimension_count"));
  EXPECT_THAT(refusal(TinyLlama().U32("llama.rope.freq_base", 10000)),
              HasSubstr("llama.rope.freq_base"));
  EXPECT_THAT(refusal(TinyLlama().Tensor("rope_freqs.weight", {1, 2}, 0,
                                         std::string(8, '\0'))),
              HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(refusal(TinyLlama().Tensor("blk.2.attn_q.weight", {8, 3}, 0,
                                         std::string(96, '\0'))),
              HasSubstr("2 heads"));
}

TEST(ModelFileTest, SplitGgufIsOneModel) {
  const TempDir dir;
  const auto part = [](uint32_t number) {
    return GgufBuilder()
        .Text("general.architecture", "any")
        .Key("split.no", 2, BytesOf(static_cast<uint16_t>(number)))
        .Key("split.count", 2, BytesOf<uint16_t>(2))
        .Key("split.tensors.count", 5, BytesOf<int32_t>(2));
  };
  const std::string first =
      dir.Write("m-00001-of-00002.gguf",
                part(0).Tensor("a", {1}, 0, BytesOf(1.0f)).Build());
  EXPECT_EQ(sluice::OpenModel(first).status().code(), StatusCode::kNotFound);
  const std::string second =
      dir.Write("m-00002-of-00002.gguf",
                part(1).Tensor("b", {1}, 0, BytesOf(2.0f)).Build());
  for (const std::string& path : {first, dir.path()}) {
    const auto model = sluice::OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(ReadAll(**model, "a"), ElementsAre(1.0f));
    EXPECT_THAT(ReadAll(**model, "b"), ElementsAre(2.0f));
  }
  EXPECT_THAT(Message(sluice::OpenModel(second).status()),
              HasSubstr("open the one that ends in -00001-of-00002.gguf"));
  // The same tensor in both, then a part of another set.
  dir.Write("m-00002-of-00002.gguf",
            part(1).Tensor("a", {1}, 0, BytesOf(2.0f)).Build());
  EXPECT_THAT(Message(sluice::OpenModel(first).status()),
              HasSubstr("'a' is in"));
  dir.Write("m-00002-of-00002.gguf",
            part(7).Tensor("b", {1}, 0, BytesOf(2.0f)).Build());
  EXPECT_THAT(Message(sluice::OpenModel(first).status()),
              HasSubstr("split.no 7"));
}

TEST(ModelFileTest, ShardNamesMustStayInTheFolder) {
  for (const char* shard : {"../evil.safetensors", "/etc/passwd", "..", "",
                            "sub/model.safetensors", "a\\u0000b"}) {
    const TempDir dir;
    dir.Write("config.json", "{}");
    dir.Write("model.safetensors.index.json",
              Cat(R"({"weight_map":{"a":")", shard, R"("}})"));
    const auto model = sluice::OpenModel(dir.path());
    EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument) << shard;
    EXPECT_THAT(Message(model.status()), HasSubstr("no file name"));
  }
}

TEST(ModelFileTest, AnIndexThatContradictsItsShardsIsRefused) {
  const TempDir dir;
  dir.Write("config.json", "{}");
  const auto refusal = [&](std::string_view index) {
    dir.Write("model.safetensors.index.json", index);
    return sluice::OpenModel(dir.path()).status();
  };
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors"}})").code(),
            StatusCode::kNotFound);
  WriteShard(dir, "1.safetensors", "a", 1);
  WriteShard(dir, "2.safetensors", "a", 2);
  EXPECT_TRUE(refusal(R"({"weight_map":{"a":"1.safetensors"}})").ok());
  // A tensor that no shard has, and a shard that is not there, are missed by a
  // model that needs them.
  EXPECT_TRUE(refusal(R"({"weight_map":{"a":"1.safetensors",)"
                      R"("b":"1.safetensors","c":"3.safetensors"}})")
                  .ok());
  WriteShard(dir, "2.safetensors", "b", 2);
  EXPECT_THAT(Message(refusal(R"({"weight_map":{"a":"2.safetensors",)"
                              R"("b":"2.safetensors","c":"1.safetensors"}})")),
              AllOf(HasSubstr("'a' is in "), HasSubstr("1.safetensors, not in"),
                    HasSubstr("'2.safetensors'")));
  EXPECT_THAT(Message(refusal(R"({"weight_map":{"a":1}})")),
              HasSubstr("expected a string"));
  EXPECT_THAT(Message(refusal("{}")), HasSubstr("weight_map"));
  EXPECT_THAT(Message(refusal("{")), HasSubstr("weight_map"));
  EXPECT_THAT(Message(refusal(R"({"weight_map":{}})")), HasSubstr("0 shards"));
  EXPECT_THAT(Message(refusal(std::string(1 << 20, '['))),
              HasSubstr("nested deeper than 32 levels"));
}

TEST(ModelFileTest, AGgufIsToldByItsFirstBytes) {
  const TempDir dir;
  const std::string gguf = testing::TinyLlama().Build();
  const std::string blob = dir.Write("sha256-0123", gguf);
  EXPECT_TRUE(IsGgufFile(blob));
  EXPECT_FALSE(IsGgufFile(dir.Write("notes.txt", "GGU")));
  EXPECT_FALSE(IsGgufFile(dir.path()));
  for (const std::string& path : {blob, dir.path()}) {
    EXPECT_TRUE(sluice::OpenModel(path).ok()) << path;
  }
  // Hubs lay the description of the unquantised model beside it, and
  // projectors of images.
  dir.Write("config.json", R"({"model_type": "llama"})");
  dir.Write("mmproj-F16.gguf", gguf);
  dir.Write("x.MMProj-Q8_0.gguf", gguf);
  const auto model = sluice::OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config().at("vocab_size"), 6);
  dir.Write("other.gguf", gguf);
  EXPECT_THAT(
      Message(sluice::OpenModel(dir.path()).status()),
      AllOf(HasSubstr("has 2 models"), HasSubstr("'other.gguf', 'sha256-0123'"),
            HasSubstr("neither model.safetensors nor")));
}

TEST(ModelFileTest, QuantisationIsDescribedInSeveralPlaces) {
  const auto said = [](const char* config, const char* file, const char* text) {
    const TempDir dir;
    dir.Write("config.json", config);
    WriteShard(dir, "model.safetensors", "a", 1);
    dir.Write(file, text);
    const auto model = sluice::OpenModel(dir.path());
    EXPECT_TRUE(model.ok()) << model.status();
    return DumpJson((*model)->config().value("quantization_config", Json()));
  };
  EXPECT_EQ(said("{}", "quantize_config.json", R"({"bits": 4})"),
            R"({"bits":4,"quant_method":"gptq"})");
  EXPECT_EQ(said("{}", "hf_quant_config.json",
                 R"({"producer": {}, "quantization": {"quant_algo": "FP8"}})"),
            R"({"quant_algo":"FP8","quant_method":"modelopt"})");
  EXPECT_EQ(said(R"({"compression_config": {"quant_method": "x"}})",
                 "quantize_config.json", R"({"bits": 4})"),
            R"({"quant_method":"x"})");
  EXPECT_EQ(said(R"({"quantization_config": {"quant_method": "y"}})",
                 "quantize_config.json", R"({"bits": 4})"),
            R"({"quant_method":"y"})");
}

TEST(ModelFileTest, ATensorInTwoShardsIsRefused) {
  const TempDir dir;
  dir.Write("config.json", "{}");
  WriteShard(dir, "1.safetensors", "a", 1);
  dir.Write(
      "2.safetensors",
      Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  std::string(8, '\0')));
  dir.Write("model.safetensors.index.json",
            R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_THAT(Message(sluice::OpenModel(dir.path()).status()),
              HasSubstr("'a'"));
}

TEST(ModelFileTest, FoldersWithoutAModelSayWhatIsMissing) {
  EXPECT_EQ(sluice::OpenModel("/nowhere/at/all").status().code(),
            StatusCode::kNotFound);
  const TempDir dir;
  EXPECT_THAT(Message(sluice::OpenModel(dir.path()).status()),
              HasSubstr("no config.json"));
  dir.Write("config.json", "{}");
  EXPECT_THAT(Message(sluice::OpenModel(dir.path()).status()),
              HasSubstr("model.safetensors"));
  for (const char* config : {"", "[]", "{\"a\":", "{\"a\":nan}"}) {
    dir.Write("config.json", config);
    EXPECT_EQ(sluice::OpenModel(dir.path()).status().code(),
              StatusCode::kInvalidArgument)
        << config;
  }
  EXPECT_EQ(sluice::OpenModel("/dev/zero").status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ModelFileTest, ReadingCountsTheBytesOfTheSliceAndNoMore) {
  const std::string path = testing::GoldenModel("llama3-tied");
  const auto model = sluice::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->bytes_read(), 0u);
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const TensorInfo& info = *(*model)->Find(name);
  std::vector<float> out(static_cast<size_t>(info.elements()));
  const Slice some = {3, 10, 32, 64};
  ASSERT_TRUE((*model)->ReadF32(name, some, out.data()).ok());
  EXPECT_EQ((*model)->bytes_read(), 7u * 32 * 4);
  ASSERT_TRUE((*model)->ReadF32(name, Slice::All(info), out.data()).ok());
  EXPECT_EQ((*model)->bytes_read(),
            7u * 32 * 4 + static_cast<uint64_t>(info.stored_bytes()));
}

TEST(ModelFileTest, SlicesOutsideTheTensorAndUnknownNamesAreRefused) {
  const TempDir dir;
  const auto model =
      sluice::OpenModel(dir.Write("tiny.gguf", TinyLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string name = "model.layers.0.mlp.up_proj.weight";  // [12, 8]
  float out[96];
  for (const Slice& slice :
       {Slice{0, 13, 0, 8}, Slice{0, 12, 0, 9}, Slice{-1, 2, 0, 8},
        Slice{3, 2, 0, 8}, Slice{0, 1, 5, 4}}) {
    const Status status = (*model)->ReadF32(name, slice, out);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("[12, 8]"));
  }
  EXPECT_EQ((*model)->ReadF32("no.such", {0, 1, 0, 1}, out).code(),
            StatusCode::kNotFound);
}

TEST(ModelFileTest, AFileThatIsCutShortLaterGivesDataLoss) {
  const TempDir dir;
  const std::string path = dir.Write("tiny.gguf", TinyLlama().Build());
  const auto model = sluice::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(::truncate(path.c_str(), 4000), 0);
  float out[8];
  const Status status =
      (*model)->ReadF32("model.norm.weight", {0, 1, 0, 8}, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("model.norm.weight"));
}

TEST(ModelIdentityTest, SeesOneBitOfOneWeightAndOfTheConfig) {
  const TempDir dir;
  const auto digest = [&](const std::string& bytes) {
    const auto model = sluice::OpenModel(dir.Write("tiny.gguf", bytes));
    EXPECT_TRUE(model.ok()) << model.status();
    const auto computed = ComputeIdentity(**model);
    EXPECT_TRUE(computed.ok()) << computed.status();
    return computed->Hex();
  };
  std::string bytes = TinyLlama().Build();
  const std::string original = digest(bytes);
  EXPECT_EQ(original.size(), 64u);
  EXPECT_EQ(digest(bytes), original);
  bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 1);
  EXPECT_NE(digest(bytes), original);
  EXPECT_NE(digest(TinyLlama().F32("llama.rope.freq_base", 1e5f).Build()),
            original);
}

TEST(ModelIdentityTest, DoesNotDependOnTheOrderOfConfigKeys) {
  const auto digest = [](std::string_view config) {
    const TempDir dir;
    dir.Write("config.json", config);
    WriteShard(dir, "model.safetensors", "a", 1);
    return ComputeIdentity(**sluice::OpenModel(dir.path()))->Hex();
  };
  EXPECT_EQ(digest(R"({"a":1,"b":{"c":2,"d":3}})"),
            digest(R"({"b":{"d":3,"c":2},"a":1})"));
  EXPECT_NE(digest(R"({"a":1})"), digest(R"({"a":2})"));
}

}  // namespace
}  // namespace sluice::weights
