#ifndef SLUICE_COMMON_MODEL_COMPUTE_ROWS_H_
#define SLUICE_COMMON_MODEL_COMPUTE_ROWS_H_

#include "common/base/option_row.h"
#include "common/model/packed_weights.h"
#include "common/model_config/weights_mode.h"

namespace sluice {

// Returns the rows of the options that stages and hosts of experts share: how
// they compute, and keep packed weights. `options`: StageOptions or
// HostedExpertsOptions. A process keeps packed weights unless it is told not
// to, unlike a stage of a test.
template <typename Options>
OptionRows ComputeRowsOf(Options& options) {
  PackedOptions& packed = options.packed;
  packed.where = "auto";
  const auto name = [](const auto& value) { return ToString(value); };
  return {
      {"threads", &options.threads,
       "compute threads; 0: one per core, and no more than the control "
       "group's CPU quota"},
      {"pin-threads", &options.pin_threads,
       "pin each compute thread to a core of its own, and take memory near "
       "the cores: for a process that has its cores for itself"},
      {"weights", option::Parsed(&options.weights, ParseWeightsMode, name),
       "auto, bf16, f32, or blocks made at load: q8_0, q4_0, q4_1, q5_0, "
       "q5_1"},
      {"numerics", &options.numerics,
       "how it computes: canonical, a CPU's bits; fast, a GPU's matrix units "
       "in BF16, which the whole cluster must have; auto, fast on a GPU"},
      {"activations",
       option::Words(&options.activations,
                     {{"stored", kernels::BlockActivations::kEightBits},
                      {"f32", kernels::BlockActivations::kF32}}),
       "what weights of blocks (GGUF's, MXFP4) are multiplied with: stored, "
       "activations of eight bits; f32, blocks widened as they are multiplied, "
       "as exact as the reference and slower; the same on all stages and hosts "
       "of experts"},
      {"isa", &options.isa,
       "auto, avx512vnni, avx512, avxvnni, avx2, neoni8mm, neondot, neon or "
       "portable"},
      {"packed", &packed.where,
       "where packed weights are kept for the next start: auto (beside the "
       "model, or in the user's cache), off, or a folder"},
      {"packed-gb",
       option::Number<double>(
           "GB", {0, kMostPackedGb},
           [&packed](double gigabytes) -> Status {
             SLUICE_ASSIGN_OR_RETURN(packed.bounds.max_bytes,
                                     ParsePackedGb(gigabytes));
             return OkStatus();
           },
           [&packed] {
             return static_cast<double>(packed.bounds.max_bytes.value_or(0)) /
                    1e9;
           }),
       "most GB (10^9 bytes) on disk of packed weights of all models in one "
       "folder; 0: for each model what its weights take once in memory"},
      {"packed-memory",
       option::Words(&packed.memory, {{"copy", weights::PackedMemory::kCopy},
                                      {"map", weights::PackedMemory::kMap}}),
       "kept weights are copied into huge pages (copy: faster), or the "
       "file's pages are used, which processes share (map)"}};
}

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_COMPUTE_ROWS_H_
