#include "common/grammar/grammar_compiler.h"

#include <utility>

#include "common/base/check.h"
#include "common/grammar/grammar_cache.h"
#include "common/grammar/grammar_constraint.h"
#include "common/grammar/matcher.h"
#include "common/grammar/matcher_threads.h"
#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"

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
  SLUICE_ASSIGN_OR_RETURN(
      auto vocabulary, GrammarVocabulary::Make(tokenizer, vocab_size, eos_ids));
  return std::unique_ptr<GrammarCompiler>(
      new GrammarCompiler(std::move(vocabulary), options));
}

GrammarCompiler::GrammarCompiler(
    std::shared_ptr<const GrammarVocabulary> vocabulary, const Options& options)
    : limits_(options.limits),
      vocabulary_(std::move(vocabulary)),
      cache_(std::make_unique<GrammarCache>(options.max_cached)),
      threads_(std::make_shared<MatcherThreads>(options.num_threads)) {}

GrammarCompiler::~GrammarCompiler() { threads_->Stop(); }

StatusOr<std::shared_ptr<const Grammar>> GrammarCompiler::Compile(
    const GrammarSpec& spec, std::string_view tenant) {
  const std::string key = GrammarCache::KeyOf(spec, tenant);
  if (auto cached = cache_->Find(key); cached != nullptr) return cached;
  SluiceGrammar* handle = nullptr;
  BridgeBuffer message;
  {
    const BridgeCall call;
    const int code = sluice_grammar_new(
        vocabulary_->handle(), static_cast<uint32_t>(spec.kind),
        BridgeData(spec.text), spec.text.size(), LimitsOf(limits_), &handle,
        message.out());
    SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  }
  auto grammar = std::make_shared<const Grammar>(vocabulary_, handle);
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
