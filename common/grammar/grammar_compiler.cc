#include "common/grammar/grammar_compiler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/grammar/grammar_cache.h"
#include "common/grammar/grammar_constraint.h"
#include "common/grammar/matcher.h"
#include "common/grammar/matcher_threads.h"
#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary.h"

namespace sluice {
namespace {

SluiceGrammarLimits LimitsOf(const GrammarLimits& limits) {
  return {limits.max_bytes, static_cast<uint32_t>(limits.max_levels),
          static_cast<uint32_t>(limits.max_enum_values),
          static_cast<uint32_t>(limits.max_compile_ms)};
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
  return std::unique_ptr<GrammarCompiler>(
      new GrammarCompiler(std::move(make), options));
}

GrammarCompiler::GrammarCompiler(
    std::packaged_task<VocabularyOr()> make_vocabulary, const Options& options)
    : limits_(options.limits),
      vocabulary_(make_vocabulary.get_future().share()),
      cache_(std::make_unique<GrammarCache>(options.max_cached)),
      threads_(std::make_shared<MatcherThreads>(options.num_threads)),
      trie_thread_("grammar-trie",
                   [make = std::make_shared<std::packaged_task<VocabularyOr()>>(
                        std::move(make_vocabulary))] { (*make)(); }) {}

GrammarCompiler::~GrammarCompiler() { threads_->Stop(); }

StatusOr<std::shared_ptr<const Grammar>> GrammarCompiler::Compile(
    const GrammarSpec& spec, std::string_view tenant) {
  const std::string key = GrammarCache::KeyOf(spec, tenant);
  if (auto cached = cache_->Find(key); cached != nullptr) return cached;
  const VocabularyOr& made = vocabulary_.get();
  if (!made.ok()) return Internal(Message(made.status()));
  const std::shared_ptr<const GrammarVocabulary>& vocabulary = *made;
  SluiceGrammar* handle = nullptr;
  BridgeBuffer message;
  {
    const BridgeCall call;
    const int code = sluice_grammar_new(
        vocabulary->handle(), static_cast<uint32_t>(spec.kind),
        BridgeData(spec.text), spec.text.size(), LimitsOf(limits_), &handle,
        message.out());
    SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  }
  auto grammar = std::make_shared<const Grammar>(vocabulary, handle);
  cache_->Add(key, grammar);
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

StatusOr<std::string> GrammarCompiler::CheckSchema(
    std::string_view schema) const {
  BridgeBuffer checked;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(checked.ToStatus(sluice_schema_check(
      BridgeData(schema), schema.size(), LimitsOf(limits_), checked.out())));
  return std::string(checked.bytes());
}

StatusOr<std::string> GrammarCompiler::LarkOfGbnf(std::string_view gbnf) const {
  BridgeBuffer lark;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(lark.ToStatus(sluice_gbnf_to_lark(
      BridgeData(gbnf), gbnf.size(), LimitsOf(limits_), lark.out())));
  return std::string(lark.bytes());
}

std::shared_ptr<TokenConstraint> GrammarCompiler::NewConstraint(
    GrammarUse use) {
  SLUICE_CHECK(use.grammar != nullptr);
  return std::make_shared<GrammarConstraint>(std::move(use), threads_);
}

}  // namespace sluice
