#ifndef SLUICE_COMMON_SERVING_TOKEN_RULES_H_
#define SLUICE_COMMON_SERVING_TOKEN_RULES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/token_constraint.h"
#include "common/serving/request.h"

namespace sluice::serving {

struct ServingContext;

// What the fields of a request, beside its grammar, let an answer's tokens be.
struct TokenRules {
  std::vector<TokenId> allowed;  // rising; empty: all
  // Sequences of tokens: the last token of one never follows the others.
  std::vector<std::vector<TokenId>> bad_words;  // none is empty
  // The most tokens of reasoning; behind them comes `reasoning_end`. Reasoning
  // lasts from one of `reasoning_begin`, as an answer's first token, to
  // `reasoning_end`.
  std::optional<int64_t> reasoning_budget;
  bool begins_in_reasoning = false;  // the prompt ends within it
  std::vector<TokenId> reasoning_begin;
  TokenId reasoning_end = 0;
};

// Returns the rules of `fields` for an answer behind `prompt`; null: none.
// INVALID_ARGUMENT names the field, of a reasoning that no token ends, too.
StatusOr<std::shared_ptr<const TokenRules>> MakeTokenRules(
    const ServingContext& context, const GenerationFields& fields,
    std::span<const TokenId> prompt);

// Holds one sequence to rules, and to a grammar beside them. The steps are a
// function of the emitted tokens, as a grammar's. The engine thread calls the
// methods.
class RuledConstraint : public TokenConstraint {
 public:
  // `grammar` null: none. Ids are below `vocab_size`.
  RuledConstraint(std::shared_ptr<const TokenRules> rules,
                  std::shared_ptr<TokenConstraint> grammar, int32_t vocab_size);

  void Advance(std::span<const TokenId> appended,
               std::function<void()> ready) override;
  const ConstraintStep* Latest() const override;

 private:
  void Take(TokenId token);
  ConstraintStep Joined(const ConstraintStep& of_grammar) const;
  // Returns the tokens that would complete a bad word, rising.
  std::vector<TokenId> Banned() const;

  const std::shared_ptr<const TokenRules> rules_;
  const std::shared_ptr<TokenConstraint> grammar_;
  const std::vector<TokenRun> allowed_;  // rules_->allowed
  const int32_t vocab_size_;
  std::vector<TokenId> emitted_;
  bool in_reasoning_ = false;
  int64_t reasoning_tokens_ = 0;
  // Of the latest Advance; nothing: it is not computed yet.
  mutable std::optional<ConstraintStep> step_;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_TOKEN_RULES_H_
