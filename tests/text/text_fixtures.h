#ifndef SLUICE_TESTS_TEXT_TEXT_FIXTURES_H_
#define SLUICE_TESTS_TEXT_TEXT_FIXTURES_H_

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace sluice::testing {

using Ids = std::vector<TokenId>;

inline constexpr EncodeOptions kRaw = {.add_special_tokens = false,
                                       .parse_special_tokens = true};

// By how much tests of volume do less where a sanitizer slows them down.
#if defined(SLUICE_ASAN) || defined(SLUICE_TSAN)
inline constexpr int kSlowdown = 8;
#else
inline constexpr int kSlowdown = 1;
#endif

// Tokenizer of `relative` in build/data (tests/testing/test_data.h), loaded
// once per process; null if it is not there.
const Tokenizer* TestTokenizer(std::string_view relative);

// Path of a file of tests/text/vocabularies, and its tokenizer, loaded once per
// process.
std::string OwnVocabulary(std::string_view name);
const Tokenizer* OwnTokenizer(std::string_view name);

// Tokenizer of the golden model `name`, loaded once per process.
const Tokenizer* GoldenTokenizer(std::string_view name);

// Tokenizers of every kind: those of tests/text/vocabularies that keep a text
// whole, those of build/data that are there, and golden models'.
struct NamedTokenizer {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
};
std::vector<NamedTokenizer> AllTokenizers();

// A small byte-level tokenizer that needs no files: all bytes, a few merges,
// specials <|im_start|>, <|im_end|>, <|endoftext|>, and <think> that is not
// special.
std::unique_ptr<Tokenizer> TinyTokenizer();

// A byte-level tokenizer that splits by the named rule ("llama-bpe") and
// merges any two bytes, so that the ends of the pieces show in the ids: with
// bytes alone a wrong split would not. It has no special tokens.
std::unique_ptr<Tokenizer> PairTokenizer(std::string_view rule);

// Random text: letters of many scripts, digits, spaces, newlines, emoji,
// punctuation, contractions.
std::string RandomText(std::mt19937_64& random, int max_pieces);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TEXT_TEXT_FIXTURES_H_
