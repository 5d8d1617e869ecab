#ifndef SLUICE_COMMON_GRAMMAR_MATCHER_H_
#define SLUICE_COMMON_GRAMMAR_MATCHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/token_constraint.h"
#include "common/core/token_mask.h"

struct SluiceGrammar;
struct SluiceGrammarEnv;
struct SluiceMatcher;

namespace sluice {

class Tokenizer;

// The tokens of a model as grammars see them. Immutable: any thread.
class GrammarVocabulary {
 public:
  // See GrammarCompiler::Create.
  static StatusOr<std::shared_ptr<const GrammarVocabulary>> Make(
      const Tokenizer& tokenizer, int32_t vocab_size,
      std::span<const TokenId> eos_ids);
  // The same of the table of sluice_tokenizer_vocabulary, without a tokenizer.
  static StatusOr<std::shared_ptr<const GrammarVocabulary>> OfTable(
      std::string_view table, int32_t vocab_size,
      std::span<const TokenId> eos_ids);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  const SluiceGrammarEnv* handle() const { return handle_; }
  const TokenMask& all_but_eos() const { return all_but_eos_; }

 private:
  GrammarVocabulary(SluiceGrammarEnv* handle, TokenMask all_but_eos)
      : handle_(handle), all_but_eos_(std::move(all_but_eos)) {}

  SluiceGrammarEnv* handle_;  // owned
  TokenMask all_but_eos_;
};

// A compiled grammar. Immutable: any thread; many matchers share it.
class Grammar {
 public:
  // Takes `handle` over.
  Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary,
          SluiceGrammar* handle)
      : vocabulary_(std::move(vocabulary)), handle_(handle) {}
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  const SluiceGrammar* handle() const { return handle_; }
  // True after a matcher that found too little memory: none can be made again.
  bool is_spoilt() const { return is_spoilt_; }
  void Spoil() const { is_spoilt_ = true; }

 private:
  mutable std::atomic<bool> is_spoilt_{false};
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // outlives the handle
  SluiceGrammar* handle_;                                // owned
};

// One sequence's place in a grammar. One thread at a time.
class Matcher {
 public:
  // Throws std::bad_alloc if there is too little memory, or `grammar` is
  // spoilt.
  static StatusOr<std::unique_ptr<Matcher>> Make(
      std::shared_ptr<const Grammar> grammar);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Takes in `tokens`, the next of the sequence, and returns the step behind
  // them, with at most `max_forced` forced tokens. Its status is
  // RESOURCE_EXHAUSTED where the grammar is too complex, INVALID_ARGUMENT for a
  // token that the grammar does not allow; no call may follow.
  ConstraintStep Step(std::span<const TokenId> tokens, size_t max_forced);

 private:
  Matcher(std::shared_ptr<const Grammar> grammar, SluiceMatcher* handle)
      : grammar_(std::move(grammar)), handle_(handle) {}

  std::shared_ptr<const Grammar> grammar_;
  SluiceMatcher* handle_;  // owned
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_MATCHER_H_
