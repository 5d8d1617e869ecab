// Our splitter and cutter against the tokenizers crate's own pipeline, and
// what happens at the limits.

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

// Random text, with special tokens of `tokenizer` in between.
std::string MixedText(std::mt19937_64& random, const Tokenizer& tokenizer) {
  std::string text = RandomText(random, 25);
  const auto& specials = tokenizer.vocabulary().special_ids();
  for (uint64_t left = random() % 3; left > 0 && !specials.empty(); --left) {
    text += tokenizer.vocabulary().Name(specials[random() % specials.size()]);
    text += RandomText(random, 10);
  }
  return text;
}

void ExpectTheCratesIds(const Tokenizer& tokenizer, int rounds) {
  std::mt19937_64 random(4);
  EncodeOptions options;
  for (int round = 0; round < rounds / kSlowdown; ++round) {
    const std::string text = MixedText(random, tokenizer);
    options.add_special_tokens = round % 2 == 0;
    const auto ours = tokenizer.Encode(text, options);
    const auto theirs = tokenizer.EncodeReference(text, options);
    ASSERT_TRUE(ours.ok()) << ours.status();
    ASSERT_TRUE(theirs.ok()) << theirs.status();
    ASSERT_EQ(*ours, *theirs) << text;
  }
}

TEST(PreTokenizerTest, IdsAreTheCratesOnRandomText) {
  ExpectTheCratesIds(*TinyTokenizer(), 2000);
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    SCOPED_TRACE(name);
    ExpectTheCratesIds(*tokenizer, 500);
  }
}

// A byte-level tokenizer without merges that splits by `patterns`.
StatusOr<std::unique_ptr<Tokenizer>> WithPatterns(
    std::vector<std::string> patterns) {
  VocabularySpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteLevelText(std::string(1, char(byte))));
    spec.kinds.push_back(TokenKind::kNormal);
  }
  spec.byte_level = true;
  spec.patterns = std::move(patterns);
  TextSource source;
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return Tokenizer::Make(source, /*keep_reference=*/true);
}

TEST(PreTokenizerTest, EveryNamedRuleSplitsAsTheCrateDoes) {
  std::set<std::vector<std::string>> tried;
  for (const std::string& name : PreTokenizerNames()) {
    SCOPED_TRACE(name);
    if (!tried.insert(PreTokenizerByName(name)->patterns).second) continue;
    ExpectTheCratesIds(*PairTokenizer(name), 500);
  }
  EXPECT_GT(tried.size(), 25u);
}

// Rules that split digits into threes from a number's end.
constexpr const char* kThreesRules[] = {"tiny_aya", "afmoe", "superbpe"};

TEST(PreTokenizerTest, ThreesOfDigitsAreTheCrates) {
  for (const char* name : kThreesRules) {
    SCOPED_TRACE(name);
    const auto tokenizer = PairTokenizer(name);
    for (size_t digits = 0; digits < 14; ++digits) {
      const std::string number =
          std::string("12345678901234").substr(0, digits);
      for (const char* behind : {"", "a", " ", "_", ".5", "\n", "\u0301",
                                 "\u0664", "\u0664\u0664é"}) {
        for (const char* before : {"", "x", " ", "-", "\u0664"}) {
          const std::string text = before + number + behind;
          const auto ids = tokenizer->Encode(text, kRaw);
          const auto expected = tokenizer->EncodeReference(text, kRaw);
          ASSERT_TRUE(ids.ok()) << ids.status();
          EXPECT_EQ(*ids, *expected) << text;
        }
      }
    }
  }
}

TEST(PreTokenizerTest, AMegabyteOfDigitsIsSplit) {
  for (const char* name : kThreesRules) {
    SCOPED_TRACE(name);
    const auto tokenizer = PairTokenizer(name);
    const auto ids =
        tokenizer->Encode(std::string((size_t{1} << 20) + 1, '7'), kRaw);
    EXPECT_TRUE(ids.ok()) << ids.status();
  }
  EXPECT_TRUE(PairTokenizer("tiny_aya")->is_linear());
}

TEST(PreTokenizerTest, AnUnknownRuleIsRefusedByName) {
  const auto rule = PreTokenizerByName("no-such-rule");
  EXPECT_EQ(rule.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(Message(rule.status()).find("no-such-rule"), std::string::npos);
  EXPECT_NE(Message(rule.status()).find("llama-bpe"), std::string::npos);
}

TEST(PreTokenizerTest, APatternAtItsLimitIsAnErrorAndNotOtherIds) {
  // Exponential in a backtracking engine; the crate's splitter ends silently.
  const auto tokenizer = WithPatterns({"(?:(?=.)a|(?=.)aa)+c"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode("aaac", kRaw).ok());
  const auto ids = (*tokenizer)->Encode(std::string(60, 'a'), kRaw);
  EXPECT_EQ(ids.status().code(), StatusCode::kResourceExhausted)
      << ids.status();
}

TEST(PreTokenizerTest, AnUnknownPatternHasALengthCap) {
  const auto tokenizer = WithPatterns({"[a-z]+|(?=x)y"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode(std::string((1 << 20) + 1, ' '), kRaw);
  EXPECT_EQ(ids.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(Message(ids.status()).find("1048576"), std::string::npos);
}

TEST(PreTokenizerTest, AMalformedPatternIsRefused) {
  EXPECT_EQ(WithPatterns({"("}).status().code(), StatusCode::kInvalidArgument);
}

TEST(PreTokenizerTest, AMegabyteOfAnythingIsEncoded) {
  constexpr size_t kBytes = (size_t{1} << 20) / kSlowdown;
  std::string natural;
  std::mt19937_64 random(5);
  while (natural.size() < kBytes) natural += RandomText(random, 30);
  const auto repeated = [](std::string_view unit) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    return text;
  };
  const std::pair<const char*, std::string> texts[] = {
      {"mixed", natural},           {"a", repeated("a")},
      {"spaces", repeated(" ")},    {"newlines", repeated("\n")},
      {"emoji", repeated("😀")},     {"digits", repeated("7")},
      {"brackets", repeated("<|")}, {"specials", repeated("<|im_end|>")},
  };
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    // One of each kind is enough.
    if (name != "tokenizers/llama3_2" && name != "tokenizers/qwen3" &&
        name != "vocab/o200k_base.tiktoken" && name != "pieces.model") {
      continue;
    }
    for (const auto& [kind, text] : texts) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = tokenizer->Encode(text, kRaw);
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - start;
      ASSERT_TRUE(ids.ok()) << name << " " << kind << ids.status();
      if (took.count() > 1.0) {
        std::printf("%s, 1 MB of %s: %.2f s, %zu ids\n", name.c_str(), kind,
                    took.count(), ids->size());
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
