// Draws answers that grammars allow, without a model: each token is drawn from
// the mask alike, so that texts come out that no model would write.
//
// usage: grammar_answers MODEL SEEDS MAX_TOKENS < LINES
//
// MODEL: a folder or file with a tokenizer. A line: {"kind": "json_schema",
// "json_object", "regex", "choice", "gbnf" or "lark", "text": ..}. For each a
// line: {"error", "compile_ms"}, or {"compile_ms", "answers": [{"text",
// "complete", "error"}], "tokens", "forced", "steps_us": [the time to each
// step]}.
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/grammar/grammar_compiler.h"
#include "common/text/tokenizer.h"
#include "tests/grammar/walk.h"

namespace sluice {
namespace {

GrammarSpec::Kind KindOf(const std::string& name) {
  constexpr const char* kNames[] = {"lark",  "json_schema", "json_object",
                                    "regex", "choice",      "gbnf"};
  int kind = 0;
  while (kind < 5 && name != kNames[kind]) ++kind;
  return static_cast<GrammarSpec::Kind>(kind);
}

Json Draw(GrammarCompiler& compiler, const Tokenizer& tokenizer,
          const std::vector<TokenId>& eos, const Json& line, int seeds,
          size_t max_tokens) {
  const TimePoint begin = Clock::now();
  const auto grammar = compiler.Compile(
      {KindOf(line.at("kind")), line.at("text").get<std::string>()}, "");
  Json out;
  out["compile_ms"] = 1e3 * Seconds(Clock::now() - begin);
  if (!grammar.ok()) {
    out["error"] = std::string(grammar.status().message());
    return out;
  }
  Json answers = Json::array();
  Json steps = Json::array();
  size_t tokens = 0;
  int64_t forced = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto constraint = compiler.NewConstraint({.grammar = *grammar});
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const testing::Walk walk = testing::DrawAnswer(
        tokenizer, tokenizer.vocab_size(), eos, *constraint, random,
        {.max_tokens = max_tokens, .hurry = 0.1 + 0.04 * (seed % 20)});
    Json answer;
    answer["text"] = *tokenizer.Decode(walk.tokens, false);
    answer["complete"] = walk.is_complete;
    if (!walk.status.ok()) answer["error"] = std::string(walk.status.message());
    answers.push_back(std::move(answer));
    for (const Duration wait : walk.waits) {
      steps.push_back(static_cast<int64_t>(1e6 * Seconds(wait)));
    }
    tokens += walk.tokens.size();
    for (const int length : walk.forced_runs) forced += length;
  }
  out["answers"] = std::move(answers);
  out["tokens"] = tokens;
  out["forced"] = forced;
  out["steps_us"] = std::move(steps);
  return out;
}

int Main(const std::string& model, int seeds, size_t max_tokens) {
  const auto tokenizer = Tokenizer::Load(model);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 2;
  }
  const Tokenizer& text = **tokenizer;
  std::vector<TokenId> eos = text.eos_ids();
  if (eos.empty()) eos = {text.vocab_size() - 1};
  const TimePoint begin = Clock::now();
  auto compiler = GrammarCompiler::Create(text, text.vocab_size(), eos, {});
  if (!compiler.ok()) {
    std::cerr << compiler.status() << "\n";
    return 2;
  }
  std::cerr << "vocabulary of " << text.vocab_size() << " tokens read in "
            << Seconds(Clock::now() - begin) << " s\n";
  for (std::string line; std::getline(std::cin, line);) {
    const auto parsed = ParseJson(line);
    if (!parsed.ok()) {
      std::cerr << parsed.status() << "\n";
      return 2;
    }
    std::cout << Draw(**compiler, text, eos, *parsed, seeds, max_tokens)
                     .dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: grammar_answers MODEL SEEDS MAX_TOKENS < LINES\n";
    return 2;
  }
  return sluice::Main(argv[1], std::atoi(argv[2]),
                      static_cast<size_t>(std::atoi(argv[3])));
}
