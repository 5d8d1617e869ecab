#ifndef SLUICE_COMMON_ENGINE_JOURNAL_H_
#define SLUICE_COMMON_ENGINE_JOURNAL_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"

namespace sluice {

// All that is needed to compute a sequence again, on any pipeline, to the
// same next token: sampling is a function of these values and the logits.
struct JournalEntry {
  GenerateRequest request;      // seed resolved; prompt_tokens moved to tokens
  std::vector<TokenId> tokens;  // prompt, then what was emitted
  int32_t num_prompt_tokens = 0;

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_emitted() const { return num_tokens() - num_prompt_tokens; }
  std::span<const TokenId> first(int32_t count) const {
    return std::span(tokens).first(static_cast<size_t>(count));
  }
};

// The one place where the token histories of live sequences are kept. A token
// is appended before it is sent to anyone, so nothing that was sent can be
// decided again. Not thread safe: the engine loop's.
class Journal {
 public:
  // `id` was never opened before. The entry stays where it is until Close.
  const JournalEntry& Open(SequenceId id, GenerateRequest request);
  void Append(SequenceId id, TokenId token);
  void Close(SequenceId id);

  // The sequence's first appearance in a plan: all it needs to go on, but
  // for its blocks.
  StartedSequence Replay(SequenceId id) const;

  size_t size() const { return entries_.size(); }

 private:
  std::unordered_map<SequenceId, JournalEntry> entries_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_JOURNAL_H_
