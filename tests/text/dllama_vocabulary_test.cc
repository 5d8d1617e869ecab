// distributed-llama's .t files: tokenizers that its converter would write give
// the ids of their sources.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/text/dllama_tokenizer.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_formats.h"
#include "common/weights/gguf_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/text/text_fixtures.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A .t file.
struct TokenizerFile {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  std::string behind_pairs;  // template, ids
  std::vector<std::pair<float, std::string>> tokens;
  uint32_t magic = 0x567124;

  std::string Build() const {
    std::string bytes = BytesOf(magic);
    bytes += BytesOf(static_cast<int32_t>(8 + pairs.size() * 8));
    for (const auto& [key, value] : pairs) {
      bytes += BytesOf(key) + BytesOf(value);
    }
    bytes += behind_pairs;
    for (const auto& [score, token] : tokens) {
      bytes += BytesOf(score) + BytesOf(static_cast<uint32_t>(token.size()));
      bytes += token;
    }
    return bytes;
  }
};

// What dllama's converter writes of a fast tokenizer: bytes, falling scores.
TokenizerFile OfByteLevel(const Tokenizer& from, int32_t bos) {
  TokenizerFile file;
  for (TokenId id = 0; id < from.vocab_size(); ++id) {
    file.tokens.emplace_back(-static_cast<float>(id), from.TokenBytes(id));
  }
  file.pairs = {{3, bos}, {0, 1}, {1, from.vocab_size()}, {2, 256}};
  return file;
}

std::unique_ptr<Tokenizer> Load(const std::string& bytes) {
  const TempDir dir;
  auto made = Tokenizer::Load(dir.Write("x.t", bytes));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

void ExpectSameIds(const Tokenizer& to, const Tokenizer& from,
                   const std::vector<std::string>& specials) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000 / kSlowdown; ++i) {
    std::string text = RandomText(random, 30);
    if (!specials.empty() && i % 3 == 0) {
      text += specials[random() % specials.size()] + RandomText(random, 5);
    }
    const EncodeOptions options = {.add_special_tokens = i % 2 == 0};
    const auto wanted = from.Encode(text, options);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const auto got = to.Encode(text, options);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(*got, *wanted) << text;
    ASSERT_EQ(*to.Decode(*got, false), *from.Decode(*wanted, false)) << text;
  }
}

TEST(DllamaVocabularyTest, Llama3GivesTheIdsOfItsTokenizer) {
  const Tokenizer* from = TestTokenizer("tokenizers/llama3_2");
  if (from == nullptr) GTEST_SKIP() << "needs build/data/tokenizers";
  TokenizerFile file = OfByteLevel(*from, 128000);
  file.pairs.emplace_back(9, 2);
  file.pairs.emplace_back(10, 1);
  file.pairs.emplace_back(7, 5);
  file.behind_pairs =
      "{{x}}" + BytesOf<int32_t>(128009) + BytesOf<int32_t>(128001);
  const auto to = Load(file.Build());
  ASSERT_NE(to, nullptr);
  EXPECT_EQ(to->bos_token(), "<|begin_of_text|>");
  EXPECT_EQ(to->eos_token(), "<|eot_id|>");
  EXPECT_THAT(to->eos_ids(), ElementsAre(128001, 128009));
  EXPECT_TRUE(to->IsSpecial(128009));
  EXPECT_EQ(*ChatTemplateOfDllama(file.Build()), "{{x}}");
  ExpectSameIds(*to, *from, {"<|eot_id|>", "<|start_header_id|>", "<|eot_id"});
}

TEST(DllamaVocabularyTest, Qwen3GivesTheIdsOfItsTokenizer) {
  const Tokenizer* from = TestTokenizer("tokenizers/qwen3");
  if (from == nullptr) GTEST_SKIP() << "needs build/data/tokenizers";
  TokenizerFile file = OfByteLevel(*from, 151643);
  file.pairs.emplace_back(9, 1);
  file.pairs.emplace_back(10, 0);
  file.behind_pairs = BytesOf<int32_t>(151645);
  const auto to = Load(file.Build());
  ASSERT_NE(to, nullptr);
  EXPECT_THAT(to->eos_ids(), ElementsAre(151645));
  EXPECT_TRUE(to->IsSpecial(*to->TokenToId("<|im_end|>")));
  EXPECT_FALSE(to->IsSpecial(*to->TokenToId("<think>")));
  ExpectSameIds(*to, *from, {"<|im_end|>", "<think>", "</tool_call>", "<|im_"});
}

TEST(DllamaVocabularyTest, SentencePieceGivesTheIdsOfItsModel) {
  SLUICE_REQUIRE_TEST_DATA(gguf, "vocab/ggml-vocab-llama-spm.gguf");
  const auto from = Tokenizer::Load(gguf);
  ASSERT_TRUE(from.ok()) << from.status();
  const auto keys = *weights::ReadGgufMetadata(gguf);
  const auto tokens = *keys.Strings("tokenizer.ggml.tokens");
  const auto scores = *keys.Floats("tokenizer.ggml.scores");
  // Older converters write "<0x0A>", newer ones the byte.
  for (const bool raw : {false, true}) {
    TokenizerFile file;
    for (size_t id = 0; id < tokens.size(); ++id) {
      std::string token;
      for (size_t at = 0; at < tokens[id].size(); ++at) {
        const bool is_mark = tokens[id].compare(at, 3, "\xE2\x96\x81") == 0;
        token += is_mark ? ' ' : tokens[id][at];
        if (is_mark) at += 2;
      }
      if (raw && id >= 3 && id < 259) {
        token = std::string(1, static_cast<char>(id - 3));
      }
      file.tokens.emplace_back(static_cast<float>(scores[id]), token);
    }
    file.pairs = {{0, 1},
                  {1, static_cast<int32_t>(tokens.size())},
                  {2, 48},
                  {3, 1},
                  {4, 2}};
    const auto to = Load(file.Build());
    ASSERT_NE(to, nullptr);
    EXPECT_THAT(to->eos_ids(), ElementsAre(2));
    ExpectSameIds(*to, **from, {"<s>", "</s>"});
  }
}

// Our own writer's files give the ids of their sources.
void ExpectWritten(const std::string& path, std::optional<TokenId> bos,
                   int vocab_size, const std::vector<std::string>& specials) {
  VocabularyOptions options;
  options.vocab_size = vocab_size;
  options.bos = bos;
  const auto from = Tokenizer::Load(path);
  ASSERT_TRUE(from.ok()) << from.status();
  const auto bytes = DllamaTokenizerOf(path, options);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto to = Load(*bytes);
  ASSERT_NE(to, nullptr);
  EXPECT_EQ(to->eos_token(), (*from)->eos_token());
  EXPECT_EQ(to->vocab_size(), (*from)->vocab_size());
  ExpectSameIds(*to, **from, specials);
}

TEST(DllamaTokenizerTest, Llama3sIsWritten) {
  SLUICE_REQUIRE_TEST_DATA(path, "tokenizers/llama3_2");
  ExpectWritten(path, std::nullopt, 128256,
                {"<|eot_id|>", "<|start_header_id|>", "<|eot_id"});
}

// Its config, not its tokenizer, names bos; the embedding has more rows.
TEST(DllamaTokenizerTest, Qwen3sIsWritten) {
  SLUICE_REQUIRE_TEST_DATA(path, "tokenizers/qwen3");
  ExpectWritten(path, 151643, 151936,
                {"<|im_end|>", "<think>", "</tool_call>", "<|im_"});
}

TEST(DllamaTokenizerTest, SentencePiecesIsWritten) {
  ExpectWritten(GoldenModel("stories"), std::nullopt, 512, {"<s>", "</s>"});
  SLUICE_REQUIRE_TEST_DATA(path, "vocab/ggml-vocab-llama-spm.gguf");
  ExpectWritten(path, std::nullopt, 32000, {"<s>", "</s>"});
}

// A vocabulary of letters and two merges, of no known family.
TokenizerFile Letters() {
  TokenizerFile file;
  file.tokens = {{0, "a"},   {0, "b"},    {0, " "},   {0, "1"},
                 {-1, "ab"}, {-2, "b a"}, {0, "<s>"}, {0, "</s>"}};
  file.pairs = {{0, 1}, {1, 8}, {2, 4}, {3, 6}, {9, 1}, {10, 0}};
  file.behind_pairs = BytesOf<int32_t>(7);
  return file;
}

TEST(DllamaVocabularyTest, OtherVocabulariesAreMergedWithoutSplits) {
  TokenizerFile file = Letters();
  file.tokens.insert(file.tokens.begin() + 5, {-3, "b "});
  file.tokens[6] = {-1.5f, "b a"};
  file.pairs[1].second = 9;
  file.pairs[3].second = 7;
  file.behind_pairs = BytesOf<int32_t>(8);
  const auto to = Load(file.Build());
  ASSERT_NE(to, nullptr);
  EXPECT_EQ(*to->Encode("ab1", kRaw), (Ids{4, 3}));
  // "b a" is of two words.
  EXPECT_EQ(*to->Encode("b a", kRaw), (Ids{6}));
  EXPECT_EQ(*to->Encode("<s>b1</s>", kRaw), (Ids{7, 1, 3, 8}));
  EXPECT_THAT(to->eos_ids(), ElementsAre(8));
}

TEST(DllamaVocabularyTest, TheOldHeaderHasFiveNumbers) {
  TokenizerFile file = Letters();
  std::string bytes = BytesOf<uint32_t>(0x567123);
  for (const int32_t value : {8, 4, 6, 7, -1}) bytes += BytesOf(value);
  file.pairs.clear();
  file.behind_pairs.clear();
  const auto to = Load(bytes + file.Build().substr(8));
  ASSERT_NE(to, nullptr);
  EXPECT_EQ(*to->Encode("ab", EncodeOptions()), (Ids{6, 4}));
  EXPECT_THAT(to->eos_ids(), ElementsAre(7));
}

TEST(DllamaVocabularyTest, DamagedFilesAreRefusedByName) {
  const auto error = [](const TokenizerFile& file, size_t cut = 0) {
    const std::string bytes = file.Build();
    return Message(FromDllama(bytes.substr(0, bytes.size() - cut)).status());
  };
  const TokenizerFile good = Letters();
  EXPECT_EQ(error(good), "");
  EXPECT_THAT(error(good, 1), HasSubstr("token 7 needs 4 bytes at "));
  EXPECT_THAT(error(good, 40), HasSubstr("vocab_size is 8, "));
  TokenizerFile file = good;
  file.tokens.emplace_back(0, "more");
  EXPECT_THAT(error(file), HasSubstr("12 bytes are behind the last of 8"));
  file = good;
  file.magic = 9;
  EXPECT_THAT(error(file), HasSubstr("magic 9 is no tokenizer of "
                                     "distributed-llama"));
  const auto with = [&](int32_t key, int32_t value) {
    TokenizerFile changed = good;
    changed.pairs.emplace_back(key, value);
    return error(changed);
  };
  EXPECT_THAT(with(11, 0), HasSubstr("header key is 11, limits 0 and 10"));
  EXPECT_THAT(with(0, 2), HasSubstr("version is 2, limits 1 and 1"));
  EXPECT_THAT(with(3, 8), HasSubstr("bos_id is 8, limits -1 and 7"));
  EXPECT_THAT(with(4, 9), HasSubstr("eos id is 9, limits 0 and 7"));
  EXPECT_THAT(with(7, 1000), HasSubstr("chat_template needs 1000 bytes at "));
  EXPECT_THAT(with(9, -1), HasSubstr("n_eos_tokens is -1, limits 0 and 1024"));
  file = good;
  file.pairs.erase(file.pairs.begin());
  EXPECT_THAT(error(file), HasSubstr("version is 0, supported is 1"));
  file = good;
  file.tokens[6].second = "\xFF";
  EXPECT_THAT(error(file), HasSubstr("token 6 is not UTF-8"));
  const TempDir dir;
  dir.Write("x.m", "");
  EXPECT_THAT(Message(Tokenizer::Load(dir.path() + "/x.m").status()),
              HasSubstr("no tokenizer x.t beside it, and 0 other .t files"));
  dir.Write("a.t", "");
  dir.Write("b.t", "");
  EXPECT_THAT(Message(Tokenizer::Load(dir.path() + "/x.m").status()),
              HasSubstr("and 2 other .t files"));
  dir.Write("x.t", "123");
  EXPECT_THAT(Message(Tokenizer::Load(dir.path() + "/x.m").status()),
              HasSubstr("x.t: magic needs 4 bytes at 0, 3 are left of 3"));
}

}  // namespace
}  // namespace sluice::testing
