#include "common/engine/journal.h"

#include <utility>

#include "common/base/check.h"

namespace sluice {

const JournalEntry& Journal::Open(SequenceId id, GenerateRequest request) {
  JournalEntry entry;
  entry.tokens = std::move(request.prompt_tokens);
  entry.num_prompt_tokens = static_cast<int32_t>(entry.tokens.size());
  entry.request = std::move(request);
  entry.request.prompt_tokens.clear();
  const auto [it, inserted] = entries_.emplace(id, std::move(entry));
  SLUICE_CHECK(inserted);
  return it->second;
}

void Journal::Append(SequenceId id, TokenId token) {
  entries_.at(id).tokens.push_back(token);
}

void Journal::Close(SequenceId id) { entries_.erase(id); }

StartedSequence Journal::Replay(SequenceId id) const {
  const JournalEntry& entry = entries_.at(id);
  StartedSequence started;
  started.sequence = id;
  started.sampling = entry.request.sampling;
  started.num_prompt_tokens = entry.num_prompt_tokens;
  started.tokens = entry.tokens;
  return started;
}

}  // namespace sluice
