#include "common/placement/stage_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/core/kv_groups.h"

namespace sluice::placement {
namespace {

// What is left to the system: a part, and at least so much.
constexpr uint64_t kReservedPart = 32;
constexpr uint64_t kReservedBytes = uint64_t{256} << 20;
// Of the logits that a stage computes at a time (common/model/stage_model.cc).
constexpr int64_t kLogitsBytes = int64_t{32} << 20;
// What sampling takes beside them, as a divisor: seen there, too.
constexpr int64_t kSamplingPart = 5;
// A sequence that runs holds up to so many blocks of states.
constexpr uint64_t kStatesOfSequence = 2;

// Returns weights, keys and values, and states of `sequences` sequences, for
// which a stage keeps at most half of its room (ChooseStateBlocks).
uint64_t BytesFor(const StageBytes& bytes, int64_t sequences) {
  const uint64_t blocks = kStatesOfSequence * static_cast<uint64_t>(sequences);
  if (bytes.state == 0 || blocks <= kLeastStateBlocks) return bytes.total();
  const uint64_t kv = bytes.kv - kLeastStateBlocks * bytes.state;
  const uint64_t states = blocks * bytes.state;
  return bytes.weights + std::max(kv, states) + states;
}

}  // namespace

uint64_t UsableBytes(uint64_t memory) {
  const uint64_t reserved = std::max(memory / kReservedPart, kReservedBytes);
  return memory > reserved ? memory - reserved : 0;
}

uint64_t WorkBytes(const ModelConfig& config, const LayerLoadOptions& loads,
                   bool is_last) {
  int64_t columns = 0;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& attention = layer.attention;
    const int64_t mlp = layer.is_sparse() ? layer.moe.shared_intermediate_size
                                          : layer.mlp.intermediate_size;
    const int64_t sparse =
        layer.is_sparse() ? 3 * config.hidden_size + layer.moe.num_experts : 0;
    columns = std::max(columns, 2 * attention.q_size() +
                                    2 * attention.kv_size() + 3 * mlp + sparse);
  }
  columns += 2 * int64_t{config.hidden_size};
  const int64_t step = loads.max_step_tokens;
  constexpr int64_t kFloat = sizeof(float);
  const int64_t logits = std::min(
      kLogitsBytes, std::max(int64_t{1}, step) * config.vocab_size * kFloat);
  return kProcessBytes +
         static_cast<uint64_t>(columns * step * kFloat +
                               (is_last ? logits + logits / kSamplingPart : 0));
}

StageMemoryNeeds::StageMemoryNeeds(const ModelConfig& config, LayerLoads loads,
                                   const LayerLoadOptions& options,
                                   int64_t sequences)
    : loads_(std::move(loads)),
      work_(WorkBytes(config, options, /*is_last=*/false)),
      last_work_(WorkBytes(config, options, /*is_last=*/true)) {
  const int32_t layers = loads_.num_layers();
  bytes_.resize(Index(layers, layers) + 1);
  weights_.resize(bytes_.size());
  kv_.resize(bytes_.size());
  for (int32_t first = 0; first < layers; ++first) {
    for (int32_t last = first + 1; last <= layers; ++last) {
      const StageBytes bytes = loads_.Of({first, last});
      weights_[Index(first, last)] = bytes.weights;
      kv_[Index(first, last)] = bytes.kv - kLeastStateBlocks * bytes.state;
      bytes_[Index(first, last)] =
          BytesFor(bytes, sequences) + work(last == layers);
    }
  }
}

size_t StageMemoryNeeds::Index(int32_t first, int32_t last) const {
  return static_cast<size_t>(first) *
             (static_cast<size_t>(loads_.num_layers()) + 1) +
         static_cast<size_t>(last);
}

uint64_t StageMemoryNeeds::Of(const LayerRange& range) const {
  return bytes_[Index(range.first, range.last)];
}

uint64_t StageMemoryNeeds::Weights(const LayerRange& range) const {
  return weights_[Index(range.first, range.last)];
}

double StageMemoryNeeds::Crowding(const LayerRange& range,
                                  uint64_t memory) const {
  const size_t at = Index(range.first, range.last);
  const auto left =
      static_cast<double>(memory) - static_cast<double>(weights_[at]) -
      static_cast<double>(work(range.last == loads_.num_layers()));
  return static_cast<double>(kv_[at]) / std::max(left, 1.0);
}

bool StageMemoryNeeds::MayBegin(int32_t layer) const {
  const auto at = static_cast<size_t>(layer);
  return at >= loads_.uncut.size() || !loads_.uncut[at];
}

bool StageMemoryNeeds::Fit(const LayerRange& range, int32_t stages,
                           uint64_t memory) const {
  if (stages == 1) return Of(range) <= memory;
  int32_t begins = 1;
  for (int32_t i = range.first + 1; i < range.last; ++i) {
    begins += MayBegin(i) ? 1 : 0;
  }
  if (begins < stages) return false;
  // The fewest stages: each takes as many layers as it holds.
  int32_t first = range.first;
  for (int32_t used = 1; used <= stages; ++used) {
    int32_t last = range.last;
    while (last > first && (Of({first, last}) > memory ||
                            (last < range.last && !MayBegin(last)))) {
      --last;
    }
    if (last == range.last) return true;
    if (last == first) return false;
    first = last;
  }
  return false;
}

std::vector<LayerRange> StageMemoryNeeds::Cut(const LayerRange& range,
                                              int32_t stages) const {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const int32_t layers = range.last - range.first;
  // [stage][end]: the smallest largest stage, and where it begins.
  const std::vector<std::pair<uint64_t, int32_t>> none(
      static_cast<size_t>(layers) + 1, {kNone, 0});
  std::vector<std::vector<std::pair<uint64_t, int32_t>>> best(
      static_cast<size_t>(stages) + 1, none);
  best[0][0].first = 0;
  for (size_t stage = 1; stage < best.size(); ++stage) {
    for (int32_t end = 1; end <= layers; ++end) {
      const int32_t last = range.first + end;
      if (end < layers && !MayBegin(last)) continue;
      auto& least = best[stage][static_cast<size_t>(end)];
      for (int32_t begin = end - 1; begin >= 0; --begin) {
        const uint64_t before =
            best[stage - 1][static_cast<size_t>(begin)].first;
        if (before == kNone) continue;
        const uint64_t size = std::max(before, Of({range.first + begin, last}));
        if (size < least.first) least = {size, begin};
      }
    }
  }
  std::vector<LayerRange> ranges(static_cast<size_t>(stages));
  int32_t end = layers;
  for (size_t stage = ranges.size(); stage > 0; --stage) {
    const int32_t begin = best[stage][static_cast<size_t>(end)].second;
    ranges[stage - 1] = {range.first + begin, range.first + end};
    end = begin;
  }
  return ranges;
}

}  // namespace sluice::placement
