#ifndef SLUICE_TESTS_ENGINE_RANDOM_RUN_H_
#define SLUICE_TESTS_ENGINE_RANDOM_RUN_H_

#include <cstdint>

#include "common/engine/engine_stats.h"
#include "tests/engine/random_shape.h"

namespace sluice {

// What goes wrong in a random run, each so often in a thousand moves.
struct Faults {
  int losses = 0;  // the pipeline is lost, with the results that are out
  // Of the losses, those that some stages survive with their KV cache, while
  // the others are replaced.
  int survivals = 0;
  // Of these, those after which the layers are split anew, over any number of
  // stages. A stage with the same layers is a survivor.
  int recuts = 0;
  int moves = 0;  // by plan, with copies
  // Of the lost pipelines' results, those that come to a later pipeline.
  int late_results = 0;
  // The next result answers another step, or comes twice: the pipeline is
  // given up.
  int contradictions = 0;
  int no_host = 0;  // a sequence's part of a step has no host
  int drains = 0;   // a stage is about to leave: nothing starts, then a loss
  int resizes = 0;  // of a loss: the next pipeline has other blocks and stages
  int jumps = 0;    // the process stood still for up to a minute
};

struct Totals {
  EngineCounters counters;
  int max_plans = 0;
  uint64_t epochs = 1;
  int64_t ahead = 0;  // chunks whose token was not known, of the last epoch
  int64_t moves = 0;
  Faults faults;  // how many there were
  uint64_t num_sequences = 0;
  int64_t ended_by_faults = 0;  // sequences that no pipeline could go on with
};

// Runs `num_requests` random requests with random arrivals, cancels, failures,
// delays of results and faults; every outcome must be as if it ran alone.
Totals RunRandom(const Shape& shape, uint32_t seed, int num_requests,
                 const Faults& faults = {});

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_RANDOM_RUN_H_
