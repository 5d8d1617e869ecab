#ifndef SLUICE_COMMON_CORE_TOKEN_CONSTRAINT_H_
#define SLUICE_COMMON_CORE_TOKEN_CONSTRAINT_H_

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/token_mask.h"

namespace sluice {

// What a grammar says of the tokens behind a sequence's history.
struct ConstraintStep {
  // Not OK: the grammar failed, and the sequence ends with this error.
  Status status;
  // The answer is whole and nothing may follow: the sequence ends with kStop.
  bool is_complete = false;
  // The tokens that must follow, in order, at most kMaxDraftTokens. The answer
  // goes on behind them.
  std::vector<TokenId> forced;
  // The tokens that may follow behind `forced`. Nothing: any token may.
  std::optional<TokenMask> mask;
};

// Holds one sequence to a grammar. The steps are a function of the emitted
// tokens alone, so that a sequence which is computed again needs nothing more.
// The engine thread calls both methods; the work is done on other threads.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Begins to compute the step behind all emitted tokens, of which `appended`
  // are new since the call before. Calls `ready` once, from any thread, when
  // Latest returns the step: also within this call. Drops `ready` uncalled only
  // when no step will come any more.
  virtual void Advance(std::span<const TokenId> appended,
                       std::function<void()> ready) = 0;

  // Returns the step behind all emitted tokens, the same at each call until
  // the next Advance; null while the step is computed and before any Advance.
  virtual const ConstraintStep* Latest() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_TOKEN_CONSTRAINT_H_
