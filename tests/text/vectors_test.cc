// Ids of the reference libraries: with a small vocabulary of each kind, which
// tests/text/vocabularies/make.py trained, and with published ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary_formats.h"
#include "tests/testing/test_data.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

Json ReadVectors(std::string_view name) {
  return *ParseJson(ReadFileOrDie(OwnVocabulary(name)),
                    {.max_bytes = size_t{1} << 24});
}

// A file of ranks is known by their number: tokens that no text has, since no
// UTF-8 begins with the byte 0xFF ("//" in base64), make up that number.
std::string WithUnusedRanks(std::string ranks, int64_t num_ranks) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int64_t rank = std::count(ranks.begin(), ranks.end(), '\n');
       rank < num_ranks; ++rank) {
    ranks += "//AA";
    for (const int shift : {18, 12, 6, 0}) {
      ranks += kDigits[static_cast<size_t>(rank >> shift) % 64];
    }
    ranks += Cat(" ", rank, "\n");
  }
  return ranks;
}

// The tokenizer of a case of vectors.json: of its file, which it may change.
StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const Json& one) {
  const std::string path = OwnVocabulary(one["file"].get<std::string>());
  TextSource source;
  if (one.contains("num_ranks")) {
    SLUICE_ASSIGN_OR_RETURN(
        source, FromTiktoken(WithUnusedRanks(ReadFileOrDie(path),
                                             one["num_ranks"].get<int64_t>())));
    return Tokenizer::Make(source);
  }
  if (!one.contains("patch")) return Tokenizer::Load(path);
  Json whole = *ParseJson(ReadFileOrDie(path));
  whole.update(one["patch"]);
  source.tokenizer_json = DumpJson(whole);
  return Tokenizer::Make(source);
}

void ExpectReferenceIds(const Tokenizer& tokenizer, const Json& one,
                        const std::vector<std::string>& texts) {
  ASSERT_EQ(one["ids"].size(), texts.size());
  const EncodeOptions options = {
      .add_special_tokens = false,
      .parse_special_tokens = one["parses_special"].get<bool>()};
  for (size_t i = 0; i < texts.size(); ++i) {
    const Ids expected = one["ids"][i].get<Ids>();
    const auto ids = tokenizer.Encode(texts[i], options);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, expected) << "text " << i << ": " << texts[i];
    if (one["decoded"].is_null()) continue;
    const std::string decoded =
        one["decoded"].value(std::to_string(i), texts[i]);
    EXPECT_EQ(*tokenizer.Decode(expected, false), decoded) << "text " << i;
  }
}

TEST(VectorsTest, EveryKindOfVocabularyGivesTheReferencesIds) {
  const Json vectors = ReadVectors("vectors.json");
  const auto texts = vectors["texts"].get<std::vector<std::string>>();
  for (const Json& one : vectors["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto tokenizer = TokenizerOf(one);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectReferenceIds(**tokenizer, one, texts);
  }
  EXPECT_EQ(vectors["cases"].size(), 15u);
  EXPECT_EQ(texts.size(), 56u);
}

// Pieces behind a model's, and options in the place of its own.
TEST(VectorsTest, SymbolsAndWhiteSpaceAreSentencePieces) {
  const Json vectors = ReadVectors("symbols.json");
  const EncodeOptions options = {.add_special_tokens = false,
                                 .parse_special_tokens = false};
  for (const Json& one : vectors["cases"]) {
    const auto append = one["append"].get<std::string>();
    SCOPED_TRACE(Cat(one["file"].get<std::string>(), " and ", append));
    std::string model =
        ReadFileOrDie(OwnVocabulary(one["file"].get<std::string>()));
    for (size_t i = 0; i < append.size(); i += 2) {
      model += static_cast<char>(std::stoi(append.substr(i, 2), nullptr, 16));
    }
    const auto source = FromSentencePiece(model);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto tokenizer = Tokenizer::Make(*source);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (size_t i = 0; i < one["texts"].size(); ++i) {
      const auto text = one["texts"][i].get<std::string>();
      const auto ids = (*tokenizer)->Encode(text, options);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, one["ids"][i].get<Ids>()) << text;
    }
  }
  EXPECT_EQ(vectors["cases"].size(), 24u);
}

class PublishedVectorsTest : public ::testing::TestWithParam<int> {};

TEST_P(PublishedVectorsTest, GiveTheReferencesIds) {
  static const Json& vectors = *new Json(ReadVectors("published.json"));
  const Json& one = vectors["cases"][static_cast<size_t>(GetParam())];
  const std::string name = one["file"];
  SCOPED_TRACE(name);
  SLUICE_REQUIRE_TEST_DATA(path, name);
  EXPECT_FALSE(path.empty());
  ExpectReferenceIds(*TestTokenizer(name), one,
                     vectors["texts"].get<std::vector<std::string>>());
}

INSTANTIATE_TEST_SUITE_P(Published, PublishedVectorsTest,
                         ::testing::Range(0, 7));

}  // namespace
}  // namespace sluice::testing
