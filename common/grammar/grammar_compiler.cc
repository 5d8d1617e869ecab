#include "common/grammar/grammar_compiler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/grammar/compile_text.h"
#include "common/grammar/grammar_cache.h"
#include "common/grammar/grammar_constraint.h"
#include "common/grammar/grammar_job.h"
#include "common/grammar/matcher.h"
#include "common/grammar/matcher_threads.h"
#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary.h"

namespace sluice {
namespace {

// What answers often have, of which a text's masks are tried.
constexpr std::string_view kAnswers[] = {
    R"({"name": "K\u00f6ln", "size": [1, -2.5e+10, true, null], "of": {}})",
    R"([{"a": [[[[[[1]]]]]]}, {"b": "x\n"}, {}])",
    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "\"",
    "The quick brown fox jumps over 13 lazy dogs.\n\nAnd so on: a, b, c.",
    "-12345678901234567890.5e-10",
    "2024-02-29T12:30:00Z",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

StatusOr<CompileSetup> SetupOf(const Tokenizer& tokenizer, int32_t vocab_size,
                               const std::vector<TokenId>& eos_ids,
                               const GrammarLimits& limits) {
  CompileSetup setup;
  setup.limits = limits;
  setup.vocab_size = vocab_size;
  setup.eos_ids = eos_ids;
  BridgeBuffer table;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(table.ToStatus(
      sluice_tokenizer_vocabulary(tokenizer.handle(), table.out())));
  setup.table = table.bytes();
  for (const std::string_view answer : kAnswers) {
    const auto ids = tokenizer.Encode(answer, {false, false});
    if (ids.ok()) setup.answers.push_back(*ids);
  }
  return setup;
}

}  // namespace

StatusOr<std::unique_ptr<GrammarCompiler>> GrammarCompiler::Create(
    const Tokenizer& tokenizer, int32_t vocab_size,
    std::span<const TokenId> eos_ids, const Options& options) {
  const auto num_ids = std::min<int64_t>(
      vocab_size, static_cast<int64_t>(tokenizer.vocabulary().size()));
  if (std::none_of(eos_ids.begin(), eos_ids.end(),
                   [&](TokenId id) { return id >= 0 && id < num_ids; })) {
    return InvalidArgument("no end token among ", num_ids, " ids");
  }
  std::packaged_task<VocabularyOr()> make(
      [&tokenizer, vocab_size,
       ids = std::vector<TokenId>(eos_ids.begin(), eos_ids.end())] {
        auto made = GrammarVocabulary::Make(tokenizer, vocab_size, ids);
        if (!made.ok()) {
          LogWarning("no answer can be held to a grammar: ",
                     Message(made.status()));
        }
        return made;
      });
  auto compiler = std::unique_ptr<GrammarCompiler>(
      new GrammarCompiler(std::move(make), options));
  if (!options.trial_program.empty()) {
    compiler->process_ = std::make_unique<CompileProcess>(
        options.trial_program,
        [&tokenizer, vocab_size, limits = options.limits,
         ids = std::vector<TokenId>(eos_ids.begin(), eos_ids.end())] {
          return SetupOf(tokenizer, vocab_size, ids, limits);
        });
  }
  return compiler;
}

GrammarCompiler::GrammarCompiler(
    std::packaged_task<VocabularyOr()> make_vocabulary, const Options& options)
    : limits_(options.limits),
      vocabulary_(make_vocabulary.get_future().share()),
      // Most grammars have two keys: see GrammarCache::KeyOfRequest.
      cache_(std::make_unique<GrammarCache>(2 * options.max_cached)),
      threads_(std::make_shared<MatcherThreads>(options.num_threads)),
      trie_thread_("grammar-trie",
                   [make = std::make_shared<std::packaged_task<VocabularyOr()>>(
                        std::move(make_vocabulary))] { (*make)(); }) {}

GrammarCompiler::~GrammarCompiler() {
  StopTrials();
  threads_->Stop();
}

void GrammarCompiler::StopTrials() {
  if (process_ != nullptr) process_->Stop();
}

const TrialFailures* GrammarCompiler::trial_failures() const {
  return process_ == nullptr ? nullptr : &process_->failures();
}

StatusOr<std::shared_ptr<const Grammar>> GrammarCompiler::Compile(
    const GrammarSpec& spec, std::string_view tenant) {
  return GrammarJob(*this, tenant).Compile(spec);
}

StatusOr<std::string> GrammarCompiler::CheckSchema(
    std::string_view schema) const {
  return CheckSchemaText(schema, limits_, Trial::kNo);
}

StatusOr<std::string> GrammarCompiler::LarkOfGbnf(std::string_view gbnf) const {
  return LarkOfGbnfText(gbnf, limits_, Trial::kNo);
}

std::shared_ptr<TokenConstraint> GrammarCompiler::NewConstraint(
    GrammarUse use) {
  SLUICE_CHECK(use.grammar != nullptr);
  return std::make_shared<GrammarConstraint>(std::move(use), threads_);
}

}  // namespace sluice
