#ifndef SLUICE_TESTS_ENGINE_RANDOM_SHAPE_H_
#define SLUICE_TESTS_ENGINE_RANDOM_SHAPE_H_

#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/engine_options.h"

namespace sluice {

inline constexpr int kRunVocab = 50;

// The pipeline and the options of a random run.
struct Shape {
  int num_blocks = 400;
  std::vector<int32_t> windows = {0};  // of the KV groups
  int num_state_blocks = 0;
  int step_tokens = 512;  // the pipeline's limit
  int num_stages = 1;
  bool logs = false;  // whether stages have logs of what they hand on
  EngineOptions options;
  // Half of the requests have a constraint; steps come late.
  bool constrained = false;
  bool takes_forced = true;
};

// EngineOptions::ahead_within: plans go ahead whatever a step takes.
inline constexpr Duration kAlwaysAhead = std::chrono::hours(1);

inline PlanLimits TestLimits(int num_blocks) {
  PlanLimits limits;
  limits.max_step_tokens = 512;
  limits.max_sequences = 64;
  limits.max_context = 1024;
  limits.num_blocks = num_blocks;
  limits.num_kv_groups = 1;
  limits.vocab_size = 50;
  return limits;
}

// The limits of the shape's pipeline.
PlanLimits LimitsOf(const Shape& shape);

// Drafts `right` of four positions rightly.
DraftProposer Oracle(int right);

// A mix of all that a shape can be, without constraints.
Shape RandomShape(uint32_t seed);

// Prompts of few kinds, so that prefixes are shared; all sorts of ends. At most
// `max_positions` of prompt and completion.
GenerateRequest RandomRequest(std::mt19937& random, int max_positions);

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_RANDOM_SHAPE_H_
