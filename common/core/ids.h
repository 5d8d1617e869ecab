#ifndef SLUICE_COMMON_CORE_IDS_H_
#define SLUICE_COMMON_CORE_IDS_H_

#include <cstdint>

#include "common/base/strong_id.h"

namespace sluice {

// Index into the vocabulary.
using TokenId = int32_t;

// A sequence in one replica's engine, unique for the life of the gateway.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;

// A block of the KV cache: the same slot on every stage of a replica.
using BlockId = StrongId<struct BlockIdTag, int32_t>;

// One forward pass over one plan. Rises by one per plan within an epoch.
using StepId = StrongId<struct StepIdTag, uint64_t>;

// Count of pipeline rebuilds. Messages of an older epoch are dropped.
using Epoch = StrongId<struct EpochTag, uint64_t>;

// A whole pipeline.
using ReplicaId = StrongId<struct ReplicaIdTag, uint32_t>;

// Tokens per block of the KV cache. The handshake checks that both sides agree.
inline constexpr int kBlockTokens = 16;

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_IDS_H_
