#ifndef SLUICE_TESTS_GRAMMAR_WALK_H_
#define SLUICE_TESTS_GRAMMAR_WALK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/token_constraint.h"
#include "common/grammar/grammar_compiler.h"
#include "common/text/tokenizer.h"

namespace sluice::testing {

// One answer that a constraint allows.
struct Walk {
  Status status;
  bool is_complete = false;  // by the grammar, or by an end token
  std::vector<TokenId> tokens;
  std::vector<int> forced_runs;  // lengths of the runs of forced tokens
  std::vector<Duration> waits;   // from each Advance to its step
};

// How tokens are drawn where a mask leaves several.
struct WalkOptions {
  size_t max_tokens = 400;
  // The part of the draws that prefer what ends strings, objects and answers.
  double hurry = 0.3;
  // Texts that end something, where the mask allows them.
  std::vector<std::string> endings = {};
};

// Returns the step behind all tokens that `constraint` was given.
const ConstraintStep& Await(TokenConstraint& constraint,
                            std::span<const TokenId> appended);

bool Allows(const TokenMask& mask, TokenId id);

// Returns the step behind all tokens of a walk, of which the given ones are
// new.
using NextStep = std::function<ConstraintStep(std::span<const TokenId>)>;

// Draws an answer: each token is one that the steps allow.
Walk DrawAnswer(const Tokenizer& tokenizer, int32_t vocab_size,
                std::span<const TokenId> eos_ids, const NextStep& next,
                std::mt19937_64& random, const WalkOptions& options = {});
Walk DrawAnswer(const Tokenizer& tokenizer, int32_t vocab_size,
                std::span<const TokenId> eos_ids, TokenConstraint& constraint,
                std::mt19937_64& random, const WalkOptions& options = {});

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GRAMMAR_WALK_H_
