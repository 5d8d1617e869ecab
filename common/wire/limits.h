#ifndef SLUICE_COMMON_WIRE_LIMITS_H_
#define SLUICE_COMMON_WIRE_LIMITS_H_

#include <cstddef>
#include <cstdint>

// The largest values that a message may have, whichever protocol it is of.
namespace sluice::wire {

inline constexpr size_t kMaxNameBytes = 256;
inline constexpr int64_t kMiB = int64_t{1} << 20;
// Of one message: gRPC's limit and ours.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 31) - 1;

inline constexpr int32_t kMaxLayers = 1 << 16;
inline constexpr int32_t kMaxHiddenSize = 1 << 20;
// Of the hidden states that a result carries: a row has at most so many values,
// or as many as the vocabulary has tokens.
inline constexpr int32_t kMaxResultHidden = 1 << 15;
inline constexpr int32_t kMaxVocabSize = 1 << 24;
inline constexpr int32_t kMaxContextTokens = 1 << 24;
inline constexpr int32_t kMaxStepTokens = 1 << 20;  // and rows of a batch
inline constexpr int32_t kMaxSequences = 1 << 16;   // of one step
inline constexpr int32_t kMaxBlocks = 1 << 24;      // of KV, or of states
inline constexpr int32_t kMaxBlockTokens = 1 << 16;
inline constexpr int32_t kMaxKvGroups = 16;
inline constexpr int32_t kMaxInFlight = 1024;  // steps, and batches

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_LIMITS_H_
