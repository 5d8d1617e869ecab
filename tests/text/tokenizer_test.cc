#include "common/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/text/bridge_buffer.h"
#include "common/text/text_source.h"
#include "tests/testing/test_data.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

// A folder of this test's own, removed at the end.
class TokenizerFilesTest : public ::testing::Test {
 protected:
  TokenizerFilesTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("tokenizer_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~TokenizerFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  const std::filesystem::path folder_;
};

TEST(TokenizerTest, LongTextsAreEncodedInPartsThatChangeNothing) {
  std::mt19937_64 random(5);
  std::string text;
  // Some chunks of 64 KiB.
  while (text.size() < size_t{kSlowdown == 1 ? 300 : 150} << 10) {
    text += RandomText(random, 20);
    text += "it's 12 words  of";
    text += random() % 8 == 0 ? "\n\n" : " ";
  }
  for (const char* rule :
       {"llama-bpe", "qwen2", "gpt-4o", "gpt-2", "smollm", "default"}) {
    const auto tokenizer = PairTokenizer(rule);
    for (const bool special : {false, true}) {
      // The tokens around a text have nothing to do with the rule.
      if (special && rule != std::string_view("llama-bpe")) continue;
      const EncodeOptions options{.add_special_tokens = special};
      const auto ours = tokenizer->Encode(text, options);
      ASSERT_TRUE(ours.ok()) << rule << ours.status();
      EXPECT_EQ(*ours, *tokenizer->EncodeReference(text, options)) << rule;
    }
  }
}

TEST(TokenizerTest, AddedTokensAreFoundInLongTexts) {
  const auto tokenizer = TinyTokenizer();
  std::string text;
  Ids expected;
  for (int i = 0; i < 12'000; ++i) {
    const std::string piece = i % 3 == 0   ? "<|im_end|>"
                              : i % 3 == 1 ? " some words of"
                                           : "<think> a word";
    text += piece;
    const auto ids = tokenizer->Encode(piece, kRaw);
    expected.insert(expected.end(), ids->begin(), ids->end());
  }
  EXPECT_EQ(*tokenizer->Encode(text, kRaw), expected);
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefused) {
  const auto tokenizer = TinyTokenizer();
  const auto ids = tokenizer->Encode("ab\xFF", kRaw);
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(ids.status()).find("byte 2"), std::string::npos);
}

TEST(TokenizerTest, BoundsOfTimeAndLengthAreTold) {
  EXPECT_TRUE(TinyTokenizer()->is_linear());
  EXPECT_EQ(TinyTokenizer()->max_shrinking(), 1u);
  TextSource source;
  const auto make = [&source](const std::string& added,
                              const std::string& normalizer,
                              const std::string& pattern) {
    source.tokenizer_json = Cat(
        R"({"version":"1.0","added_tokens":[)", added, R"(],"normalizer":)",
        normalizer, R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":")",
        pattern, R"("},"behavior":"Isolated","invert":false},)",
        R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
    return *Tokenizer::Make(source);
  };
  const auto odd = make("", "null", "a+b?");
  EXPECT_FALSE(odd->is_linear());
  EXPECT_EQ(odd->max_shrinking(), 1u);
  EXPECT_EQ(make("", R"({"type":"NFC"})", "a")->max_shrinking(), 4u);
  EXPECT_EQ(make("", R"({"type":"Lowercase"})", "a")->max_shrinking(), 0u);
  const std::string swallows =
      R"({"id":2,"content":"<x>","single_word":false,"lstrip":false,)"
      R"("rstrip":true,"normalized":false,"special":true})";
  EXPECT_EQ(make(swallows, "null", "a")->max_shrinking(), 0u);
}

TEST(TokenizerTest, SpecialTokensAreParsedOnlyWhereAsked) {
  const auto tokenizer = TinyTokenizer();
  const std::string text = "a<|im_end|>b<think>c";
  const TokenId end = *tokenizer->TokenToId("<|im_end|>");
  const TokenId think = *tokenizer->TokenToId("<think>");
  const Ids parsed = *tokenizer->Encode(text, kRaw);
  EXPECT_EQ(parsed.size(), 5u);
  EXPECT_EQ(parsed[1], end);
  EncodeOptions plain = kRaw;
  plain.parse_special_tokens = false;
  const Ids text_only = *tokenizer->Encode(text, plain);
  EXPECT_EQ(std::count(text_only.begin(), text_only.end(), end), 0);
  EXPECT_EQ(std::count(text_only.begin(), text_only.end(), think), 1);
  EXPECT_EQ(*tokenizer->Decode(text_only, false), text);
}

TEST(TokenizerTest, ControlSpansBecomeTheirTokens) {
  const auto tokenizer = TinyTokenizer();
  const std::string text = "<|im_end|>x<|im_end|>";
  const ControlSpan second = {11, 21, *tokenizer->TokenToId("<|im_end|>")};
  const Ids ids = *tokenizer->EncodeWithControls(text, {&second, 1});
  EXPECT_EQ(ids.back(), second.id);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), second.id), 1);
  EXPECT_EQ(*tokenizer->Decode(ids, false), text);
}

TEST(TokenizerTest, ControlSpansOutOfOrderAreRefused) {
  const auto tokenizer = TinyTokenizer();
  const ControlSpan spans[] = {{2, 4, 1}, {1, 3, 1}};
  EXPECT_EQ(tokenizer->EncodeWithControls("abcdef", spans).status().code(),
            StatusCode::kInvalidArgument);
  const ControlSpan outside = {2, 40, 1};
  EXPECT_FALSE(tokenizer->EncodeWithControls("abc", {&outside, 1}).ok());
  const ControlSpan within = {1, 2, 1};  // within a character
  EXPECT_FALSE(tokenizer->EncodeWithControls("中", {&within, 1}).ok());
}

TEST(TokenizerTest, DecodingAnIdOutsideTheVocabularyIsRefused) {
  const auto tokenizer = TinyTokenizer();
  for (const TokenId id : {-1, tokenizer->vocab_size()}) {
    const auto text = tokenizer->Decode({&id, 1}, false);
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(text.status()).find(std::to_string(id)),
              std::string::npos);
  }
}

TEST(TokenizerTest, OneTokenHasTextAndBytes) {
  const auto tokenizer = TinyTokenizer();
  const Ids ids = *tokenizer->Encode("é hello", kRaw);
  EXPECT_EQ(tokenizer->TokenBytes(ids[0]), "\xC3");
  EXPECT_EQ(tokenizer->TokenText(ids[0]), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->TokenText(*tokenizer->TokenToId("hell")), "hell");
  EXPECT_EQ(tokenizer->TokenBytes(-7), "");
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(*tokenizer->TokenToId("<think>")));
}

TEST(TokenizerTest, KnowsTheNamesOfItsSpecialTokens) {
  const Tokenizer* llama3 = TestTokenizer("tokenizers/llama3_2");
  if (llama3 == nullptr) GTEST_SKIP() << "needs build/data/tokenizers/llama3_2";
  EXPECT_EQ(llama3->bos_id(), 128000);
  EXPECT_EQ(llama3->bos_token(), "<|begin_of_text|>");
  EXPECT_EQ(llama3->eos_ids(), Ids({128009}));
  EXPECT_EQ(llama3->vocab_size(), 128256);
  const Tokenizer* ranks = TestTokenizer("vocab/llama3-tokenizer.model");
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(ranks->vocab_size(), 128256);
  for (TokenId id = 0; id < 128256; ++id) {
    ASSERT_EQ(ranks->vocabulary().Name(id), llama3->vocabulary().Name(id));
    ASSERT_EQ(ranks->IsSpecial(id), llama3->IsSpecial(id));
  }
}

TEST(TokenizerTest, APanicInTheBridgeIsAStatus) {
  BridgeBuffer message;
  const Status status =
      message.ToStatus(sluice_bridge_test_panic(message.out()));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(Message(status).find("test panic"), std::string::npos);
}

TEST_F(TokenizerFilesTest, MissingFilesAreNamed) {
  const std::string none = (folder_ / "none").string();
  EXPECT_EQ(Tokenizer::Load(none).status().code(), StatusCode::kNotFound);
  const auto empty = Tokenizer::Load(folder_.string());
  EXPECT_EQ(empty.status().code(), StatusCode::kNotFound);
  EXPECT_NE(Message(empty.status()).find("tokenizer.json"), std::string::npos);
}

TEST_F(TokenizerFilesTest, MalformedFilesAreRefused) {
  const std::pair<const char*, std::string> files[] = {
      {"empty.json", ""},
      {"text.json", "tokenizer"},
      {"list.json", "[]"},
      {"object.json", "{}"},
      {"deep.json", std::string(100000, '[')},
      {"model.json", R"({"version":"1.0","model":{"type":"BPE"}})"},
      {"merge.json",
       R"({"version":"1.0","added_tokens":[],"model":{"type":"BPE",)"
       R"("vocab":{"a":0},"merges":[["a","b"]]}})"},
      {"ranks.model", "IQ== 0\nIg== one\n"},
      {"twice.model", "IQ== 0\nIg== 0\n"},
      {"hole.model", "IQ== 0\nIg== 5\n"},
      {"huge.model", "IQ== 99999999999\n"},
      {"empty.model", ""},
      {"piece.model", "\x0A\x7F"},
      {"gguf.gguf", "GGUF"},
      {"none.gguf", ""},
  };
  for (const auto& [name, text] : files) {
    const std::string path = Write(name, text);
    const auto tokenizer = Tokenizer::Load(path);
    EXPECT_FALSE(tokenizer.ok()) << name;
    EXPECT_NE(Message(tokenizer.status()).find(name), std::string::npos)
        << tokenizer.status();
  }
}

TEST_F(TokenizerFilesTest, ADecoderThatIsNotBuiltIsNamed) {
  const std::string path =
      Write("tokenizer.json",
            R"({"version":"1.0","added_tokens":[],"decoder":{"type":"CTC",)"
            R"("pad_token":"p","word_delimiter_token":"|","cleanup":true},)"
            R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  const auto tokenizer = Tokenizer::Load(path);
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(Message(tokenizer.status()).find("CTC"), std::string::npos);
}

TEST_F(TokenizerFilesTest, TruncatedVocabulariesAreRefusedOrWhole) {
  for (const char* name : {"pieces.model", "byte_level.gguf"}) {
    const std::string whole = ReadFileOrDie(OwnVocabulary(name));
    std::mt19937_64 random(7);
    for (int round = 0; round < 12; ++round) {
      const std::string cut = whole.substr(0, random() % whole.size());
      // No crash; a prefix of a sentencepiece file may be a smaller one.
      const auto tokenizer = Tokenizer::Load(Write(name, cut));
      EXPECT_TRUE(!tokenizer.ok() || (*tokenizer)->vocab_size() > 0);
    }
  }
}

TEST_F(TokenizerFilesTest, TrainingLeftoversAreIgnored) {
  const std::string path =
      Write("tokenizer.json",
            R"({"version":"1.0","added_tokens":[],)"
            R"("truncation":{"direction":"Right","max_length":2,)"
            R"("strategy":"LongestFirst","stride":0},)"
            R"("padding":{"strategy":{"Fixed":9},"direction":"Right",)"
            R"("pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,)"
            R"("pad_token":"a"},"decoder":{"type":"Fuse"},)"
            R"("model":{"type":"BPE","dropout":0.9,"vocab":{"a":0,"aa":1},)"
            R"("merges":[["a","a"]]}})");
  const auto tokenizer = Tokenizer::Load(folder_.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(*(*tokenizer)->Encode("aaaaaaaa", {}), Ids({1, 1, 1, 1}));
  }
}

}  // namespace
}  // namespace sluice::testing
