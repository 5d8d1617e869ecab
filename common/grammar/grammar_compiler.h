#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_COMPILER_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_COMPILER_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/core/ids.h"
#include "common/core/token_constraint.h"
#include "common/grammar/compile_process.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/grammar_texts.h"

namespace sluice {

class Grammar;
class GrammarCache;
class GrammarVocabulary;
class MatcherThreads;
class Tokenizer;

// How a sequence keeps to a grammar.
struct GrammarUse {
  std::shared_ptr<const Grammar> grammar;
  // Reasoning, which is free but for end tokens: it lasts from one of
  // `free_begin`, as an answer's first token, to one of `free_end`; the grammar
  // begins behind it. Without it the grammar begins at once.
  std::vector<TokenId> free_begin;
  std::vector<TokenId> free_end;
  bool begins_free = false;  // the prompt ends within reasoning
  // Forced tokens go into plans several at a time. Changes no token.
  bool takes_forced = true;
};

// Compiles grammars for one vocabulary, and makes constraints of them. Any
// thread may call all methods. Compiling takes the caller's thread, within
// bounds on steps that take about a second at most; masks are computed on
// threads "grammar" of the compiler's own, one sequence each.
class GrammarCompiler : public GrammarTexts {
 public:
  struct Options {
    GrammarLimits limits;
    int num_threads = 2;
    size_t max_cached = 256;  // compiled grammars, all tenants together
    // The program of the process in which texts are tried (CompileProcess);
    // empty: they are not.
    std::string trial_program;
  };

  // Begins to make the trie of the vocabulary, 0.5 s or more for 128 k tokens,
  // on a thread "grammar-trie"; the first Compile waits for the trie.
  // `tokenizer` must outlive the compiler, its grammars and constraints. Masks
  // hold ids below `vocab_size`; one of `eos_ids` ends an answer.
  // INVALID_ARGUMENT without an end token in the vocabulary.
  static StatusOr<std::unique_ptr<GrammarCompiler>> Create(
      const Tokenizer& tokenizer, int32_t vocab_size,
      std::span<const TokenId> eos_ids, const Options& options);
  // Waits for the masks that are being computed; constraints get no more.
  ~GrammarCompiler() override;
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Ends all trials of texts at once: UNAVAILABLE to who waits for them.
  void StopTrials();

  // As one GrammarJob does, which see for several texts of a request.
  //
  // Returns the compiled grammar, from the cache if `tenant` has it there.
  // INVALID_ARGUMENT, of less than 2,000 bytes, says what is wrong with the
  // text: a schema's keyword and its path. INTERNAL without a trie.
  StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSpec& spec,
                                                   std::string_view tenant);

  StatusOr<std::string> CheckSchema(std::string_view schema) const override;
  StatusOr<std::string> LarkOfGbnf(std::string_view gbnf) const override;
  const GrammarLimits& limits() const override { return limits_; }

  // Null: texts are not tried.
  const TrialFailures* trial_failures() const;

  // Makes the constraint of one sequence; needs use.grammar.
  std::shared_ptr<TokenConstraint> NewConstraint(GrammarUse use);

 private:
  friend class GrammarJob;
  using Vocabulary = std::shared_ptr<const GrammarVocabulary>;
  using VocabularyOr = StatusOr<Vocabulary>;

  GrammarCompiler(std::packaged_task<VocabularyOr()> make_vocabulary,
                  const Options& options);

  const GrammarLimits limits_;
  const std::shared_future<VocabularyOr> vocabulary_;
  const std::unique_ptr<GrammarCache> cache_;
  const std::shared_ptr<MatcherThreads> threads_;
  std::unique_ptr<CompileProcess> process_;  // null: texts are not tried
  const NamedThread trie_thread_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_COMPILER_H_
