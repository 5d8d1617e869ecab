#include "common/stage/sampled_tokens.h"

#include <algorithm>

namespace sluice {

void SampledTokens::Add(StepId step,
                        const std::vector<SequenceResult>& results) {
  auto& tokens = steps_[step];
  for (const SequenceResult& result : results) {
    if (!result.status.ok()) {
      tokens.insert_or_assign(result.sequence, result.status);
    } else if (!result.sampled.empty()) {
      tokens.insert_or_assign(result.sequence, result.sampled.back().token);
    }
  }
  while (steps_.size() > kMaxStepsBack) steps_.erase(steps_.begin());
}

bool SampledTokens::HasAll(const StepPlan& plan) const {
  return std::ranges::all_of(plan.chunks, [&](const Chunk& chunk) {
    return !chunk.sampled_by.has_value() ||
           (!steps_.empty() && *chunk.sampled_by <= steps_.rbegin()->first);
  });
}

Status SampledTokens::Resolve(StepPlan& plan,
                              std::vector<SequenceResult>& failed,
                              std::optional<StepId> in_flight) const {
  for (Chunk& chunk : plan.chunks) {
    if (!chunk.sampled_by.has_value()) continue;
    if (chunk.sampled_by == in_flight) continue;
    const auto step = steps_.find(*chunk.sampled_by);
    if (step == steps_.end() || !step->second.contains(chunk.sequence)) {
      return FailedPrecondition("chunk of sequence ", chunk.sequence,
                                " has the token of step ", *chunk.sampled_by,
                                ", which sampled none for the sequence");
    }
    const StatusOr<TokenId>& token = step->second.at(chunk.sequence);
    if (token.ok()) {
      chunk.tokens[0] = *token;
      continue;
    }
    const auto known =
        std::ranges::find(failed, chunk.sequence, &SequenceResult::sequence);
    if (known != failed.end()) continue;
    SequenceResult& result = failed.emplace_back();
    result.sequence = chunk.sequence;
    result.status = token.status();
  }
  return OkStatus();
}

}  // namespace sluice
