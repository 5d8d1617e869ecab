#include "common/engine/plan_in_flight.h"

#include <algorithm>
#include <unordered_set>

namespace sluice {
namespace {

Status CheckToken(const char* what, const TokenResult& result,
                  int32_t num_logprobs, int32_t vocab_size) {
  const auto in_vocabulary = [&](TokenId token) {
    return token >= 0 && token < vocab_size;
  };
  if (!in_vocabulary(result.token)) {
    return Internal(what, " token is ", result.token, ", vocabulary size is ",
                    vocab_size);
  }
  if (num_logprobs < 0) return OkStatus();
  if (!result.logprob || result.logprob->token != result.token) {
    return Internal(what, " token ", result.token, " has no logprob");
  }
  if (result.top_logprobs.size() > static_cast<size_t>(num_logprobs)) {
    return Internal(what, " token ", result.token, " has ",
                    result.top_logprobs.size(), " top logprobs, asked for ",
                    num_logprobs);
  }
  for (const TokenLogprob& top : result.top_logprobs) {
    if (!in_vocabulary(top.token)) {
      return Internal(what, " token ", result.token, ": top logprob of token ",
                      top.token, ", vocabulary size is ", vocab_size);
    }
  }
  return OkStatus();
}

Status CheckPrompt(const PlannedChunk& chunk, const Sequence& sequence,
                   const SequenceResult& result, int32_t vocab_size) {
  const int32_t num_logprobs = sequence.request.sampling.prompt_logprobs;
  if (num_logprobs < 0 || chunk.logits != LogitsWanted::kAll) {
    return OkStatus();
  }
  const int32_t known = std::min(chunk.end(), sequence.num_prompt_tokens - 1);
  const int32_t wanted = std::max(known - chunk.start, 0);
  if (result.prompt.size() != static_cast<size_t>(wanted)) {
    return Internal("result has ", result.prompt.size(),
                    " prompt tokens, the chunk asked for ", wanted);
  }
  for (int32_t i = 0; i < wanted; ++i) {
    const TokenResult& entry = result.prompt[static_cast<size_t>(i)];
    const size_t position = static_cast<size_t>(chunk.start + i + 1);
    if (entry.token != sequence.tokens[position]) {
      return Internal("result names token ", entry.token, " at position ",
                      position, ", the prompt has ", sequence.tokens[position]);
    }
    SLUICE_RETURN_IF_ERROR(
        CheckToken("prompt", entry, num_logprobs, vocab_size));
  }
  return OkStatus();
}

// Checks the number of values of a chunk's hidden states, whose rows have a
// size that stages know.
Status CheckHidden(const PlannedChunk& chunk, size_t values) {
  const size_t rows =
      chunk.logits == LogitsWanted::kAll ? static_cast<size_t>(chunk.count) : 1;
  if (values > 0 && values % rows == 0) return OkStatus();
  return Internal("result has ", values, " values of hidden states, asked for ",
                  rows, " rows");
}

}  // namespace

Status CheckAnswers(const PlanInFlight& plan, const StepResult& result) {
  if (result.step_id != plan.step_id) {
    return Internal("result of step ", result.step_id, ", step ", plan.step_id,
                    " is next");
  }
  std::unordered_set<SequenceId> asked;
  for (const PlannedChunk& chunk : plan.chunks) asked.insert(chunk.sequence);
  for (const SequenceResult& entry : result.sequences) {
    if (asked.erase(entry.sequence) == 0) {
      return Internal("result of step ", result.step_id, " names sequence ",
                      entry.sequence, " twice, or its plan has no such");
    }
  }
  return OkStatus();
}

Status CheckAnswers(const PlannedChunk& chunk, const Sequence& sequence,
                    const SequenceResult& result, int32_t vocab_size) {
  const SamplingParams& sampling = sequence.request.sampling;
  const size_t wanted = chunk.samples ? 1 : 0;
  const size_t most = wanted + chunk.drafts.size();
  if (result.sampled.size() < wanted || result.sampled.size() > most) {
    return Internal("result has ", result.sampled.size(),
                    " sampled tokens, the chunk asked for ", wanted, " to ",
                    most);
  }
  for (size_t i = 0; i < result.sampled.size(); ++i) {
    const TokenResult& token = result.sampled[i];
    SLUICE_RETURN_IF_ERROR(
        CheckToken("sampled", token, MostTopLogprobs(sampling), vocab_size));
    if (i + 1 < result.sampled.size() && token.token != chunk.drafts[i]) {
      return Internal("result goes on behind sampled token ", token.token,
                      ", draft ", i, " is ", chunk.drafts[i]);
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckPrompt(chunk, sequence, result, vocab_size));
  if (chunk.logits == LogitsWanted::kNone) return OkStatus();
  if (sampling.hidden != HiddenWanted::kNone) {
    return CheckHidden(chunk, result.logits.size());
  }
  if (!sampling.return_logits) return OkStatus();
  const size_t rows = chunk.logits == LogitsWanted::kAll
                          ? static_cast<size_t>(chunk.count)
                          : result.sampled.size();
  if (result.logits.size() != rows * static_cast<size_t>(vocab_size)) {
    return Internal("result has ", result.logits.size(), " logits, asked for ",
                    rows, " rows of ", vocab_size);
  }
  return OkStatus();
}

}  // namespace sluice
