// A tokenizer as a GGUF's keys: read back, it gives the same ids.

#include "common/text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "common/base/json.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"
#include "common/weights/gguf_writer.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"
#include "tests/testing/test_data.h"
#include "tests/text/text_fixtures.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using weights::GgufMetadata;

// Writes a GGUF of these keys and no tensors.
std::string WriteGguf(const TempDir& dir, const GgufMetadata& keys) {
  const std::string path = dir.path() + "/m.gguf";
  const auto writer = weights::GgufWriter::Create(path, keys, {});
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(Message((*writer)->Close()), "");
  return path;
}

struct Case {
  const char* source;  // as FindSource finds it
  const char* model;
  const char* pre;
  bool is_large = false;
};

// Path of a source: the golden model, of build/data, or of
// tests/text/vocabularies.
std::optional<std::string> FindSource(const std::string& name) {
  if (name == "stories") return GoldenModel(name);
  if (name.find('/') != std::string::npos) return TestData(name);
  return OwnVocabulary(name);
}

class GgufTokenizerTest : public ::testing::TestWithParam<Case> {};

TEST_P(GgufTokenizerTest, ItsKeysReadBackGiveTheSameIds) {
  if (OnlyQuick() && GetParam().is_large) {
    GTEST_SKIP() << "under sanitizers in the long mode alone";
  }
  const auto found = FindSource(GetParam().source);
  if (!found) GTEST_SKIP() << "needs build/data/" << GetParam().source;
  const std::string& path = *found;
  const auto from = Tokenizer::Load(path);
  ASSERT_TRUE(from.ok()) << from.status();
  GgufTokenizerOptions options;
  options.vocab_size = (*from)->vocab_size() + 3;
  const auto keys = GgufTokenizerOf(path, options);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->String("tokenizer.ggml.model"), GetParam().model);
  EXPECT_EQ(*keys->String("tokenizer.ggml.pre"), GetParam().pre);
  const auto tokens = *keys->Strings("tokenizer.ggml.tokens");
  const auto kinds = *keys->Ints("tokenizer.ggml.token_type");
  ASSERT_EQ(std::ssize(tokens), options.vocab_size);
  ASSERT_EQ(std::ssize(kinds), options.vocab_size);
  EXPECT_EQ(tokens.back(), Cat("[PAD", options.vocab_size - 1, "]"));
  EXPECT_EQ(kinds.back(), static_cast<int64_t>(TokenKind::kUnused));
  const TempDir dir;
  const std::string gguf = WriteGguf(dir, *keys);
  const auto to = Tokenizer::Load(gguf);
  ASSERT_TRUE(to.ok()) << to.status();
  EXPECT_EQ((*to)->bos_id(), (*from)->bos_id());
  // A GGUF has no NFC.
  const auto is_unchanged = [&](const std::string& text) {
    const auto ids = *(*from)->Encode(text, kRaw);
    return *(*from)->Decode(ids, false) == text;
  };
  std::mt19937_64 random(5);
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string text = RandomText(random, 60);
    if (!is_unchanged(text)) continue;
    ++compared;
    ASSERT_EQ(*(*to)->Encode(text, {}), *(*from)->Encode(text, {})) << text;
    ASSERT_EQ(*(*to)->Encode(text, kRaw), *(*from)->Encode(text, kRaw)) << text;
  }
  EXPECT_GT(compared, 100);
  const int stride = IsLong() ? kSlowdown : 3 * kSlowdown;
  for (TokenId id = 0; id < (*from)->vocab_size(); id += stride) {
    const std::string text = *(*from)->Decode(std::vector{id}, false);
    if (!is_unchanged(text)) continue;
    ASSERT_EQ(*(*to)->Encode(text, kRaw), *(*from)->Encode(text, kRaw)) << text;
  }
  const auto templates = *ReadChatTemplates(path);
  const auto kept = *ReadChatTemplates(gguf);
  ASSERT_EQ(kept.size(), templates.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].source, templates[i].source);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sources, GgufTokenizerTest,
    ::testing::Values(Case{"byte_level.json", "gpt2", "dbrx"},
                      Case{"byte_fallback.json", "llama", "default"},
                      Case{"pieces.model", "llama", "default"},
                      Case{"tokenizers/llama3_2", "gpt2", "llama-bpe", true},
                      Case{"tokenizers/qwen3", "gpt2", "qwen2", true},
                      Case{"tokenizers/mistral", "llama", "default"},
                      Case{"stories", "llama", "default"},
                      Case{"vocab/mistral-tokenizer.model", "llama", "default"},
                      Case{"vocab/o200k_base.tiktoken", "gpt2", "gpt-4o", true},
                      Case{"vocab/r50k_base.tiktoken", "gpt2", "gpt-2"}));

// The tokenizer.json of all bytes, one merge and special tokens 0 to 2.
Json TinyJson(const std::string& rule) {
  VocabularySpec spec;
  spec.tokens = {"<s>", "</s>", "<end>"};
  spec.kinds.assign(3, TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(
        ByteLevelText(std::string(1, static_cast<char>(byte))));
  }
  spec.tokens.push_back("he");
  spec.kinds.resize(spec.tokens.size(), TokenKind::kNormal);
  spec.merges.emplace_back("h", "e");
  spec.byte_level = true;
  const PreTokenizerRule named = *PreTokenizerByName(rule);
  spec.patterns = named.patterns;
  spec.ignore_merges = named.ignore_merges;
  return *ParseJson(*ToTokenizerJson(spec));
}

StatusOr<GgufMetadata> KeysOf(const Json& json, const Json& config = {},
                              GgufTokenizerOptions options = {}) {
  const TempDir dir;
  dir.Write("tokenizer.json", DumpJson(json));
  if (!config.is_null()) {
    dir.Write("tokenizer_config.json", DumpJson(config));
  }
  if (options.vocab_size == 0) options.vocab_size = 300;
  return GgufTokenizerOf(dir.path(), options);
}

std::string ErrorOf(const Json& json, const Json& config = {},
                    GgufTokenizerOptions options = {}) {
  return Message(KeysOf(json, config, std::move(options)).status());
}

TEST(GgufTokenizerNamesTest, PatternsGetTheNameOfTheirFirstRule) {
  for (const char* rule :
       {"llama-bpe", "qwen2", "gpt-4o", "gpt-2", "smollm", "tekken", "qwen35",
        "kimi-k2", "deepseek-v3", "deepseek-llm", "falcon", "default"}) {
    const auto keys = KeysOf(TinyJson(rule));
    ASSERT_TRUE(keys.ok()) << keys.status();
    EXPECT_EQ(*keys->String("tokenizer.ggml.pre"), rule);
  }
  EXPECT_EQ(*KeysOf(TinyJson("dbrx"))->String("tokenizer.ggml.pre"), "dbrx");
  EXPECT_EQ(*KeysOf(TinyJson("dbrx"), {{"bos_token", "<s>"}})
                 ->String("tokenizer.ggml.pre"),
            "smaug-bpe");
  // Files have line breaks in patterns as they are, too.
  Json raw = TinyJson("qwen35");
  Json& pattern = raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  std::string text = pattern.get<std::string>();
  for (size_t at; (at = text.find("\\r\\n")) != text.npos;) {
    text.replace(at, 4, "\r\n");
  }
  pattern = text;
  EXPECT_EQ(*KeysOf(raw)->String("tokenizer.ggml.pre"), "qwen35");
  // As files of SmolLM2 and of GPT-2 say it.
  Json json = TinyJson("gpt-2");
  const Json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["pre_tokenizer"] = level;
  EXPECT_EQ(*KeysOf(json)->String("tokenizer.ggml.pre"), "gpt-2");
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}}, level}}};
  EXPECT_EQ(*KeysOf(json)->String("tokenizer.ggml.pre"), "smollm");
}

TEST(GgufTokenizerNamesTest, AnUnknownPatternNeedsAName) {
  Json json = TinyJson("qwen2");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+";
  EXPECT_THAT(ErrorOf(json), HasSubstr("splits by [a-z]+, which no "));
  EXPECT_THAT(ErrorOf(json), HasSubstr("--pre-tokenizer"));
  GgufTokenizerOptions options;
  options.pre = "tekken";
  EXPECT_EQ(*KeysOf(json, {}, options)->String("tokenizer.ggml.pre"), "tekken");
}

TEST(GgufTokenizerNamesTest, IdsThatEndAnAnswerHaveThreeKeys) {
  GgufTokenizerOptions options;
  options.eos_ids = {2, 1, 7};
  const Json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto keys = KeysOf(TinyJson("qwen2"), config, options);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->Int("tokenizer.ggml.bos_token_id"), 0);
  EXPECT_EQ(*keys->Int("tokenizer.ggml.eos_token_id"), 1);
  EXPECT_EQ(*keys->Int("tokenizer.ggml.eot_token_id"), 2);
  EXPECT_EQ(*keys->Int("tokenizer.ggml.eom_token_id"), 7);
  EXPECT_FALSE(*keys->Bool("tokenizer.ggml.add_bos_token"));
  options.eos_ids.push_back(9);
  EXPECT_THAT(ErrorOf(TinyJson("qwen2"), config, options),
              HasSubstr("4 tokens end an answer, a GGUF has keys for 3"));
}

TEST(GgufTokenizerNamesTest, WhatAGgufCannotTellIsRefused) {
  const auto with = [](const char* key, const Json& value) {
    Json json = TinyJson("qwen2");
    json[key] = value;
    return json;
  };
  const Json words = {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}};
  EXPECT_THAT(ErrorOf(with("model", words)),
              HasSubstr("model WordLevel: a GGUF has keys for BPE"));
  EXPECT_THAT(ErrorOf(with("normalizer", {{"type", "Lowercase"}})),
              HasSubstr("normalizer {\"type\":\"Lowercase\"} has no key"));
  EXPECT_EQ(ErrorOf(with("normalizer", {{"type", "NFC"}})), "");
  const Json around = {{"type", "TemplateProcessing"},
                       {"single",
                        {{{"SpecialToken", {{"id", "<end>"}, {"type_id", 0}}}},
                         {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  EXPECT_THAT(ErrorOf(with("post_processor", around)),
              HasSubstr("post_processor puts '<end>' in front of a text"));
  const auto keys =
      KeysOf(with("post_processor", around), {{"bos_token", "<end>"}});
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(*keys->Bool("tokenizer.ggml.add_bos_token"));
}

TEST(GgufTokenizerNamesTest, DamagedFilesAreRefused) {
  const Json whole = TinyJson("qwen2");
  GgufTokenizerOptions small;
  small.vocab_size = 259;
  EXPECT_THAT(ErrorOf(whole, {}, small),
              HasSubstr("token 'he' has the id 259, limits 0 and 258 of the "
                        "model's vocab_size"));
  Json json = whole;
  json["model"]["vocab"]["he"] = 4;
  EXPECT_THAT(ErrorOf(json), HasSubstr("id 4 has the tokens '"));
  json = whole;
  json["model"]["merges"][0] = "h";
  EXPECT_THAT(ErrorOf(json), HasSubstr("model.merges[0] is \"h\", expected"));
  json = whole;
  json["model"]["vocab"] = 3;
  EXPECT_THAT(ErrorOf(json), HasSubstr("model has no vocab"));
  EXPECT_THAT(ErrorOf(Json::array()), HasSubstr("is no JSON object"));
}

}  // namespace
}  // namespace sluice::testing
