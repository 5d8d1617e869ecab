#include "tests/engine/random_shape.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <span>

#include "common/core/kv_groups.h"
#include "tests/engine/fake_pipeline.h"

namespace sluice {

PlanLimits LimitsOf(const Shape& shape) {
  PlanLimits limits = TestLimits(shape.num_blocks);
  limits.num_kv_groups = static_cast<int32_t>(shape.windows.size());
  limits.kv_windows = shape.windows;
  limits.num_state_blocks = shape.num_state_blocks;
  limits.max_step_tokens = shape.step_tokens;
  limits.max_context =
      static_cast<int32_t>(std::min<int64_t>(1024, MaxPositions(limits)));
  return limits;
}

// Guesses `right` of 4 tokens right, whatever follows.
DraftProposer Oracle(int right) {
  return [right](std::span<const TokenId> tokens,
                 const SamplingParams& sampling, int32_t limit) {
    std::vector<TokenId> history(tokens.begin(), tokens.end());
    std::vector<TokenId> drafts;
    while (static_cast<int32_t>(drafts.size()) < limit) {
      const TokenId token = NextToken(history, sampling, kRunVocab);
      history.push_back(token);
      const bool is_right = static_cast<int>(history.size() % 4) < right;
      drafts.push_back(is_right ? token : (token + 1) % kRunVocab);
    }
    return drafts;
  };
}

Shape RandomShape(uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  Shape shape;
  shape.num_blocks = one_of({13, 14, 20, 40, 400});
  const std::vector<int32_t> groups[] = {{0},
                                         {0, 0},
                                         {0, 20},
                                         {0, 7, 64},
                                         {0, kStateWindow},
                                         {0, 20, kStateWindow}};
  shape.windows = groups[one_of({0, 0, 1, 2, 3, 4, 4, 5})];
  if (IsState(shape.windows.back())) {
    shape.num_state_blocks = one_of({kLeastStateBlocks, 7, 20, 200});
  }
  if (shape.windows.size() > 1) {
    shape.num_blocks += 2;
    shape.step_tokens = one_of({16, 64});
  }
  shape.num_stages = one_of({1, 2, 3, 4});
  shape.options.prefill_chunk = one_of({0, 7, 16, 64});
  shape.options.max_step_tokens = one_of({8, 48, 512});
  shape.options.max_running = one_of({1, 3, 64});
  shape.options.max_running_per_client = one_of({0, 0, 1, 2});
  shape.options.place_turn = std::chrono::milliseconds(one_of({0, 1, 500}));
  shape.options.prefix_cache = one_of({0, 1, 1}) == 1;
  shape.options.min_decode_batch = one_of({1, 2, 4});
  if (seed % 3 == 0) shape.options.propose_drafts = Oracle(one_of({1, 3, 4}));
  if (seed % 3 == 1) shape.options.ahead_within = kAlwaysAhead;
  return shape;
}

GenerateRequest RandomRequest(std::mt19937& random, int max_positions) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };
  GenerateRequest request;
  const int length = 1 + pick(max_positions * 2 / 3);
  const int kind = pick(3);
  for (int i = 0; i < length; ++i) {
    const bool own = pick(40) == 0;
    request.prompt_tokens.push_back(own ? pick(kRunVocab)
                                        : (i * 3 + kind) % 50);
  }
  request.max_tokens = pick(10) == 0 ? 0 : pick(max_positions - length) + 1;
  request.sampling.seed = random();
  if (pick(2) == 0) request.eos_token_ids = {pick(kRunVocab)};
  if (pick(4) == 0) request.sampling.stop_token_ids = {pick(kRunVocab)};
  if (pick(3) == 0) request.sampling.min_tokens = pick(8);
  if (pick(4) == 0) request.sampling.logprobs = pick(3);
  if (pick(8) == 0) request.sampling.prompt_logprobs = pick(3);
  if (pick(16) == 0) request.sampling.return_logits = true;
  const bool wants_logits =
      request.sampling.return_logits || request.sampling.prompt_logprobs >= 0;
  if (request.max_tokens == 0 && !wants_logits) {
    request.sampling.hidden = static_cast<HiddenWanted>(pick(3));
  }
  if (pick(8) == 0) request.cache_salt = "tenant";
  const char* const tenants[] = {"", "a", "b"};
  request.tenant = request.client = tenants[pick(3)];
  return request;
}

}  // namespace sluice
