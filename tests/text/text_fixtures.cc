#include "tests/text/text_fixtures.h"

#include <array>
#include <map>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"

namespace sluice::testing {

namespace {

// Of the file or folder `path`, loaded once per process.
const Tokenizer* LoadedTokenizer(const std::string& path) {
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Tokenizer>>;
  if (const auto found = loaded.find(path); found != loaded.end()) {
    return found->second.get();
  }
  const auto source = ReadTextSource(path);
  if (!source.ok()) LogError(Message(source.status()));
  SLUICE_CHECK(source.ok());
  auto made = Tokenizer::Make(*source, /*keep_reference=*/true);
  if (!made.ok()) LogError(Message(made.status()));
  SLUICE_CHECK(made.ok());
  return (loaded[path] = *std::move(made)).get();
}

}  // namespace

std::string OwnVocabulary(std::string_view name) {
  return Cat("tests/text/vocabularies/", name);
}

const Tokenizer* OwnTokenizer(std::string_view name) {
  return LoadedTokenizer(OwnVocabulary(name));
}

const Tokenizer* TestTokenizer(std::string_view relative) {
  const auto path = TestData(relative);
  return path ? LoadedTokenizer(*path) : nullptr;
}

const Tokenizer* GoldenTokenizer(std::string_view name) {
  return LoadedTokenizer(GoldenModel(name));
}

std::vector<NamedTokenizer> AllTokenizers() {
  std::vector<NamedTokenizer> all;
  // Those that name an end token.
  for (const char* name :
       {"byte_level.gguf", "pieces.model", "pieces.gguf", "pieces.t"}) {
    all.push_back({name, OwnTokenizer(name)});
  }
  for (const char* relative :
       {"tokenizers/mistral", "tokenizers/llama3_2", "tokenizers/qwen3",
        "vocab/mistral-tokenizer.model", "vocab/llama3-tokenizer.model",
        "vocab/o200k_base.tiktoken", "vocab/r50k_base.tiktoken",
        "vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-llama-spm.gguf"}) {
    if (const Tokenizer* found = TestTokenizer(relative)) {
      all.push_back({relative, found});
    }
  }
  for (const char* name : {"stories", "llama3-tied"}) {
    all.push_back({name, GoldenTokenizer(name)});
  }
  return all;
}

std::unique_ptr<Tokenizer> TinyTokenizer() {
  VocabularySpec spec;
  const auto add = [&spec](std::string token, TokenKind kind) {
    spec.tokens.push_back(std::move(token));
    spec.kinds.push_back(kind);
  };
  add("<|endoftext|>", TokenKind::kControl);
  add("<|im_start|>", TokenKind::kControl);
  add("<|im_end|>", TokenKind::kControl);
  add("<think>", TokenKind::kUserDefined);
  for (int byte = 0; byte < 256; ++byte) {
    add(ByteLevelText(std::string(1, static_cast<char>(byte))),
        TokenKind::kNormal);
  }
  for (const auto& [left, right] :
       {std::pair("h", "e"), std::pair("l", "l"), std::pair("he", "ll")}) {
    spec.merges.emplace_back(left, right);
    add(std::string(left) + right, TokenKind::kNormal);
  }
  spec.byte_level = true;
  spec.patterns = PreTokenizerByName("llama-bpe")->patterns;
  TextSource source;
  source.bos_token = "<|im_start|>";
  source.eos_token = "<|im_end|>";
  source.tokenizer_json = *ToTokenizerJson(spec);
  auto made = Tokenizer::Make(source, /*keep_reference=*/true);
  if (!made.ok()) LogError(Message(made.status()));
  SLUICE_CHECK(made.ok());
  return *std::move(made);
}

std::unique_ptr<Tokenizer> PairTokenizer(std::string_view rule) {
  const auto named = PreTokenizerByName(rule);
  if (!named.ok()) LogError(Message(named.status()));
  SLUICE_CHECK(named.ok());
  VocabularySpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(
        ByteLevelText(std::string(1, static_cast<char>(byte))));
  }
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      spec.merges.emplace_back(spec.tokens[left], spec.tokens[right]);
    }
  }
  for (const Merge& merge : spec.merges) {
    spec.tokens.push_back(merge.first + merge.second);
  }
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  spec.byte_level = true;
  spec.patterns = named->patterns;
  TextSource source;
  source.tokenizer_json = *ToTokenizerJson(spec);
  auto made = Tokenizer::Make(source, /*keep_reference=*/true);
  if (!made.ok()) LogError(Message(made.status()));
  SLUICE_CHECK(made.ok());
  return *std::move(made);
}

std::string RandomText(std::mt19937_64& random, int max_pieces) {
  static constexpr std::array<std::string_view, 47> kPieces = {
      "a",      "B",       "word",
      "HELLO",  "é",       "ß",
      "ſ",      "Ω",       "中",
      "文",     "한글",    "עברית",
      "हिन्दी",  "1",       "23",
      "456",    "½",       "٣",
      " ",      "  ",      "\t",
      "\n",     "\r\n",    "\n\n",
      "\u00A0", "\u3000",  "'s",
      "'LL",    "'re",     "'",
      "!",      "?!",      "...",
      "/",      "(",       "}",
      "_",      "😀",       "👨‍👩‍👧",
      "🦙",   "e\u0301", "\u200B",
      "<",      "|",       "<think>",
      "\x01",   "$5"};
  std::uniform_int_distribution<int> count(0, max_pieces);
  std::uniform_int_distribution<size_t> pick(0, kPieces.size() - 1);
  std::string text;
  for (int left = count(random); left > 0; --left) {
    text += kPieces[pick(random)];
  }
  return text;
}

}  // namespace sluice::testing
