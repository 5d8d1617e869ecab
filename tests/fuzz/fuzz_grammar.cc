// A client's grammar to its end: compiled, and answers drawn from its masks.
// The first byte says which kind, the second how tokens are drawn. A refusal is
// an INVALID_ARGUMENT of less than 2,000 bytes; an answer that a schema's
// grammar calls complete is JSON.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/core/step_plan.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/matcher.h"
#include "common/text/tokenizer.h"
#include "tests/fuzz/input_bound.h"
#include "tests/grammar/walk.h"
#include "tests/text/text_fixtures.h"

namespace sluice {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxTokens = 60;

struct Model {
  std::unique_ptr<Tokenizer> tokenizer = testing::TinyTokenizer();
  std::vector<TokenId> eos = {*tokenizer->TokenToId("<|im_end|>")};
  std::unique_ptr<GrammarCompiler> compiler =
      *GrammarCompiler::Create(*tokenizer, tokenizer->vocab_size(), eos,
                               {.num_threads = 1, .max_cached = 0});
};

void Run(GrammarSpec::Kind kind, uint8_t seed, std::string text) {
  static const Model* const model = new Model();
  const auto grammar = model->compiler->Compile({kind, std::move(text)}, "");
  if (!grammar.ok()) {
    SLUICE_CHECK(grammar.status().code() == StatusCode::kInvalidArgument);
    SLUICE_CHECK(grammar.status().message().size() < 2000);
    return;
  }
  const auto matcher = *Matcher::Make(*grammar);
  std::mt19937_64 random(seed);
  const testing::Walk walk = testing::DrawAnswer(
      *model->tokenizer, model->tokenizer->vocab_size(), model->eos,
      [&](std::span<const TokenId> tokens) {
        return matcher->Step(tokens, kMaxDraftTokens);
      },
      random, {.max_tokens = kMaxTokens, .hurry = 0.5});
  if (!walk.status.ok()) {
    SLUICE_CHECK(walk.status.code() == StatusCode::kResourceExhausted);
    return;
  }
  const bool is_json = kind == GrammarSpec::Kind::kJsonSchema ||
                       kind == GrammarSpec::Kind::kJsonObject;
  if (!walk.is_complete || !is_json) return;
  // Numbers may be beyond what this parser takes, but nothing else is wrong.
  const std::string answer = *model->tokenizer->Decode(walk.tokens, false);
  const auto json = ParseJson(answer);
  SLUICE_CHECK(json.ok() || answer.find_first_of("0123456789") != answer.npos);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > sluice::kMaxText) return 0;
  sluice::Run(static_cast<sluice::GrammarSpec::Kind>(data[0] % 6), data[1],
              std::string(reinterpret_cast<const char*>(data + 2), size - 2));
  return 0;
}
