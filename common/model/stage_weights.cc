#include "common/model/stage_weights.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <numbers>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/model_config/portable_math.h"
#include "kernels/exp_log.h"

namespace sluice {
namespace {

using kernels::WeightType;
using weights::Slice;

// Of a weight, read at once.
constexpr int64_t kReadBytes = int64_t{8} << 20;

// Returns the member that has `place`, which one of `members` must have.
template <typename T>
T* MemberAt(WeightPlace place,
            std::initializer_list<std::pair<WeightPlace, T*>> members) {
  for (const auto& [name, member] : members) {
    if (name == place) return member;
  }
  SLUICE_CHECK(false);
}

// Returns the matrix of the table; uses `layer` for one of a layer alone.
std::unique_ptr<Weight>* MatrixAt(WeightPlace place, RankWeights& rank,
                                  LayerWeights& layer) {
  using enum WeightPlace;
  return MemberAt<std::unique_ptr<Weight>>(
      place, {{kEmbedding, &rank.embedding},
              {kHead, &rank.own_head},
              {kPerLayerEmbedding, &rank.per_layer_embedding},
              {kPerLayerProjection, &rank.per_layer_projection},
              {kInputGate, &layer.input_gate},
              {kInputProjection, &layer.input_projection},
              {kSharedGate, &layer.moe.shared_gate},
              {kQkv, &layer.qkv},
              {kQueryHeads, &layer.latent.q_heads},
              {kHeadKeys, &layer.latent.keys},
              {kHeadValues, &layer.latent.values},
              {kO, &layer.o},
              {kGateUp, &layer.mlp.gate_up},
              {kDown, &layer.mlp.down},
              {kStateIn, &layer.state.in},
              {kStateOut, &layer.state.out},
              {kRouter, &layer.moe.router},
              {kSharedGateUp, &layer.moe.shared.gate_up},
              {kSharedDown, &layer.moe.shared.down}});
}

// The same for a vector.
DeviceVector* VectorAt(WeightPlace place, RankWeights& rank,
                       LayerWeights& layer) {
  using enum WeightPlace;
  return MemberAt<DeviceVector>(
      place, {{kFinalNorm, &rank.final_norm},
              {kPerLayerNorm, &rank.per_layer_norm},
              {kInputNorm, &layer.input_norm},
              {kFinalNormBias, &rank.final_norm_bias},
              {kAttentionNormBias, &layer.attention_norm_bias},
              {kMlpNormBias, &layer.mlp_norm_bias},
              {kGateUpBias, &layer.mlp.gate_up_bias},
              {kDownBias, &layer.mlp.down_bias},
              {kAttentionNorm, &layer.attention_norm},
              {kStateTaps, &layer.state.taps},
              {kStateBias, &layer.state.conv_bias},
              {kStateLogRate, &layer.state.rate},
              {kStateRate, &layer.state.rate},
              {kStateTimeBias, &layer.state.time_bias},
              {kStateSkip, &layer.state.skip},
              {kStateNorm, &layer.state.norm},
              {kQkvBias, &layer.qkv_bias},
              {kOBias, &layer.o_bias},
              {kQueryLatentNorm, &layer.latent.q_norm},
              {kLatentNorm, &layer.latent.norm},
              {kIndexNorm, &layer.latent.index_norm},
              {kIndexNormBias, &layer.latent.index_norm_bias},
              {kQNorm, &layer.q_norm},
              {kKNorm, &layer.k_norm},
              {kSinks, &layer.sinks},
              {kPostAttentionNorm, &layer.post_attention_norm},
              {kMlpNorm, &layer.mlp_norm},
              {kPostMlpNorm, &layer.post_mlp_norm},
              {kRouterNorm, &layer.moe.router_norm},
              {kRouterBias, &layer.moe.router_bias},
              {kExpertScale, &layer.moe.expert_scale},
              {kSharedPostNorm, &layer.moe.shared_post_norm},
              {kExpertNorm, &layer.moe.expert_norm},
              {kExpertPostNorm, &layer.moe.expert_post_norm},
              {kCorrection, &layer.moe.correction}});
}

// Returns whether a vector's place is a number of the layer, and sets it.
bool SetNumber(WeightPlace place, float number, LayerWeights& layer) {
  using enum WeightPlace;
  kernels::XIelu& xielu = layer.mlp.xielu;
  const auto softplus = [](float x) {
    return OwnLog(1.0 + OwnPow(std::numbers::e, static_cast<double>(x)));
  };
  if (place == kOutputScale) layer.output_scale = number;
  if (place == kXIeluPositive) {
    xielu.positive = static_cast<float>(softplus(number));
  } else if (place == kXIeluNegative) {
    xielu.negative = static_cast<float>(softplus(number) +
                                        static_cast<double>(xielu.negative));
  } else if (place == kXIeluBeta) {
    xielu.beta = number;
    xielu.negative += number;
  } else if (place == kXIeluEps) {
    xielu.eps = number;
  }
  return place == kOutputScale ||
         (place >= kXIeluPositive && place <= kXIeluEps);
}

// Of norms without weights.
void AddOnes(const LayerConfig& layer, Backend& backend, LayerWeights& to) {
  if (!layer.attention.v_norm || layer.attention.kv_layer >= 0) return;
  const std::vector<float> ones(static_cast<size_t>(layer.attention.head_dim),
                                1.0f);
  const auto count = static_cast<int64_t>(ones.size());
  to.v_norm = backend.Allocate(ones.size() * sizeof(float));
  backend.CopyIn(ones.data(), {to.v_norm.data(), 1, count, count});
}

// Turns a part [rows, cols] of F32 or BF16 into [cols, rows].
template <typename T>
void TransposeElements(const HostWeight& from, HostWeight& to) {
  const T* const elements = from.data.as<T>();
  T* const out = to.data.as<T>();
  for (int64_t r = 0; r < from.rows; ++r) {
    for (int64_t c = 0; c < from.cols; ++c) {
      out[c * from.rows + r] = elements[r * from.cols + c];
    }
  }
}

void TransposePart(HostWeight& part) {
  HostWeight to(part.type, part.cols, part.rows);
  if (part.type == WeightType::kBf16) {
    TransposeElements<uint16_t>(part, to);
  } else {
    SLUICE_CHECK(part.type == WeightType::kF32);
    TransposeElements<float>(part, to);
  }
  part = std::move(to);
}

// The weights of a layer, or one outside of layers, as packed files name them.
PackedWeights::Group GroupOf(std::span<const WeightRead* const> reads) {
  const int32_t layer = reads[0]->layer;
  PackedWeights::Group group = {layer < 0 ? "rows" : Cat("layer-", layer), ""};
  for (const WeightRead* read : reads) {
    for (const WeightPiece& piece : read->pieces) {
      const Slice& slice = piece.slice;
      group.contents +=
          Cat(piece.from, " [", slice.row_begin, ", ", slice.row_end, ") x [",
              slice.col_begin, ", ", slice.col_end, ") ",
              FormatOf(piece.type).name, "\n");
    }
    group.contents += read->is_transposed ? "transposed\n" : "\n";
  }
  return group;
}

}  // namespace

void WeightLoader::Reading::Allocate(BufferPool* pool) {
  for (HostWeight& part : parts) {
    part = HostWeight(part.type, part.rows, part.cols, pool);
  }
}

WeightLoader::Reading WeightLoader::ReadingOf(const WeightRead& read) const {
  Reading reading;
  const std::vector<PlaceInWeight> places = PlacesOf(read);
  for (size_t i = 0; i < read.pieces.size(); ++i) {
    const WeightPiece& piece = read.pieces[i];
    if (reading.parts.size() == places[i].part) {
      HostWeight& part = reading.parts.emplace_back();
      part.type = piece.type;
      // A vector is one column.
      part.cols = read.is_vector ? 1 : Cols(read.pieces[0].slice);
    }
    HostWeight& part = reading.parts.back();
    const int64_t begin = part.rows;
    part.rows += read.is_vector ? piece.slice.elements() : Rows(piece.slice);
    reading.stored_bytes += reads_.StoredBytes(piece);
    reading.bytes += FormatOf(piece.type).bytes(piece.slice.elements());
    if (piece.slice.elements() == 0) continue;
    const auto row_bytes =
        static_cast<int64_t>(FormatOf(piece.type).bytes(Cols(piece.slice)));
    const int64_t step = std::max<int64_t>(1, kReadBytes / row_bytes);
    for (int64_t row = 0; row < Rows(piece.slice); row += step) {
      Slice slice = piece.slice;
      slice.row_begin = piece.slice.row_begin + row;
      slice.row_end = std::min(piece.slice.row_end, slice.row_begin + step);
      reading.chunks.push_back(
          {&piece, slice, reading.parts.size() - 1, begin + row});
    }
  }
  return reading;
}

Status WeightLoader::ReadChunk(const Chunk& chunk, Reading& to) const {
  return file_.ReadMatrix(chunk.piece->from, chunk.slice, chunk.at,
                          to.parts[chunk.part]);
}

void WeightLoader::Announce(const StageRange& range, const RankPlan& plan) {
  for (const WeightRead& read : reads_.All(range, plan)) {
    for (const WeightPiece& piece : read.pieces)
      total_bytes_ += reads_.StoredBytes(piece);
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const ExpertRange& run : plan.layers[i].experts) {
      total_bytes_ += expert_loader_.StoredBytes(i, run);
    }
  }
}

uint64_t WeightLoader::LoadedBytes(const StageRange& range,
                                   const RankPlan& plan) const {
  uint64_t bytes = 0;
  for (const WeightRead& read : reads_.All(range, plan)) {
    for (const WeightPiece& piece : read.pieces) {
      bytes += FormatOf(piece.type).bytes(piece.slice.elements());
    }
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const ExpertRange& run : plan.layers[i].experts) {
      bytes += expert_loader_.LoadedBytes(i, run);
    }
  }
  return bytes;
}

StatusOr<PackedWeights::Weights> WeightLoader::Pack(
    std::span<const WeightRead* const> reads, Backend& backend,
    const LoadProgress& progress) {
  PackedWeights::Weights made;
  std::vector<Reading> readings;
  for (const WeightRead* read : reads) readings.push_back(ReadingOf(*read));
  const ReadAheadOptions options = ReadAheadFor(backend.info());
  BufferPool* const pool = options.threads > 0 ? pool_.get() : nullptr;
  std::vector<AheadRead> aheads;
  for (Reading& reading : readings) {
    AheadRead& ahead = aheads.emplace_back();
    const auto chunks = static_cast<int64_t>(reading.chunks.size());
    ahead.bytes = reading.bytes;
    ahead.parts = chunks;
    ahead.begin = [&reading, pool] { reading.Allocate(pool); };
    ahead.read = [this, &reading](int64_t i) {
      return ReadChunk(reading.chunks[static_cast<size_t>(i)], reading);
    };
    ahead.progress = [this, &reading, &progress, chunks](int64_t done) {
      if (!progress || chunks == 0) return;
      progress(done_bytes_ + reading.stored_bytes *
                                 static_cast<uint64_t>(done) /
                                 static_cast<uint64_t>(chunks),
               total_bytes_);
    };
    const bool is_transposed = reads[aheads.size() - 1]->is_transposed;
    ahead.take = [this, &reading, &made, &backend, is_transposed] {
      done_bytes_ += reading.stored_bytes;
      if (is_transposed) {
        std::ranges::for_each(reading.parts, TransposePart);
      }
      made.push_back(backend.Pack(std::move(reading.parts)));
      return OkStatus();
    };
  }
  SLUICE_RETURN_IF_ERROR(ReadAhead(aheads, options));
  return made;
}

void WeightLoader::Change(const WeightRead& read, HostWeight& vector) const {
  using enum WeightPlace;
  if (read.place == kStateTaps && vector.rows > 0) {
    // Stored channel by channel.
    const int64_t taps =
        config_.layers[static_cast<size_t>(read.layer)].state.mixer.shape.taps;
    const int64_t channels = vector.rows / taps;
    const float* const stored = vector.data.as<float>();
    const std::vector<float> copy(stored, stored + vector.rows);
    for (int64_t i = 0; i < vector.rows; ++i) {
      vector.data.as<float>()[i % taps * channels + i / taps] =
          copy[static_cast<size_t>(i)];
    }
  }
  const std::span<float> elements(vector.data.as<float>(),
                                  static_cast<size_t>(vector.rows));
  if (read.place == kStateLogRate) {
    for (float& element : elements) element = -kernels::Exp(element);
  }
  if (IsNormWeight(read.place) && config_.norms_add_one) {
    for (float& element : elements) element += 1.0f;
  }
  if (read.place == kRouterNorm) {
    const double scale =
        1.0 / std::sqrt(static_cast<double>(config_.hidden_size));
    for (float& element : elements) {
      element = static_cast<float>(element * scale);
    }
  }
  if (read.place == kOBias || read.place == kDownBias) {
    const double scale = config_.layers[read.layer].residual_scale;
    for (float& element : elements) {
      element = static_cast<float>(element * scale);
    }
  }
}

Status WeightLoader::LoadVectors(const Group& group, Backend& backend,
                                 const LoadProgress& progress) {
  for (const WeightRead& read : group.reads) {
    if (!read.is_vector) continue;
    Reading reading = ReadingOf(read);
    reading.Allocate(nullptr);
    for (const Chunk& chunk : reading.chunks) {
      SLUICE_RETURN_IF_ERROR(ReadChunk(chunk, reading));
    }
    done_bytes_ += reading.stored_bytes;
    if (progress) progress(done_bytes_, total_bytes_);
    HostWeight& elements = reading.parts[0];
    if (elements.rows == 0) continue;  // a rank without such heads
    if (SetNumber(read.place, elements.data.as<float>()[0], *group.layer)) {
      continue;
    }
    Change(read, elements);
    DeviceVector& vector = *VectorAt(read.place, *group.to, *group.layer);
    vector = backend.Allocate(elements.data.size());
    backend.CopyIn(elements.data.as<float>(),
                   {vector.data(), 1, elements.rows, elements.rows});
  }
  return OkStatus();
}

StatusOr<PackedWeights::Weights> WeightLoader::LoadCuts(
    std::span<const WeightRead* const> reads, Backend& backend) {
  std::vector<WeightRead> whole;
  std::vector<std::vector<WeightCut>> cuts;
  for (const WeightRead* read : reads) {
    auto all = reads_.SameOf(*read, *whole_);
    if (!all.has_value()) return PackedWeights::Weights();
    whole.push_back(*std::move(all));
    cuts.push_back(CutsOf(*read, whole.back()));
    if (cuts.back().empty()) return PackedWeights::Weights();
  }
  std::vector<const WeightRead*> wanted;
  for (const WeightRead& read : whole) wanted.push_back(&read);
  const uint64_t done = done_bytes_;
  const auto pack = [&] { return Pack(wanted, backend, LoadProgress()); };
  SLUICE_ASSIGN_OR_RETURN(const auto all,
                          packed_.Whole(GroupOf(wanted), backend, pack));
  done_bytes_ = done;
  PackedWeights::Weights weights;
  for (size_t i = 0; i < cuts.size(); ++i) {
    weights.push_back(
        CutWeight(*(*all)[i], cuts[i], backend, packed_.context()));
    weights.back()->memory = packed_.Marks();
  }
  return weights;
}

Status WeightLoader::LoadMatrices(const Group& group, Backend& backend,
                                  const LoadProgress& progress) {
  std::vector<const WeightRead*> reads;
  uint64_t done = done_bytes_;
  for (const WeightRead& read : group.reads) {
    if (read.is_vector) continue;
    reads.push_back(&read);
    for (const WeightPiece& piece : read.pieces)
      done += reads_.StoredBytes(piece);
  }
  if (reads.empty()) return OkStatus();
  PackedWeights::Weights weights;
  if (whole_ != nullptr && packed_.SharesWhole(backend)) {
    SLUICE_ASSIGN_OR_RETURN(weights, LoadCuts(reads, backend));
  }
  if (weights.empty()) {
    const auto pack = [&] { return Pack(reads, backend, progress); };
    SLUICE_ASSIGN_OR_RETURN(weights,
                            packed_.Load(GroupOf(reads), backend, pack));
  }
  done_bytes_ = done;  // of mapped weights, too
  if (progress) progress(done_bytes_, total_bytes_);
  for (size_t i = 0; i < reads.size(); ++i) {
    group.to->bytes += weights[i]->bytes();
    *MatrixAt(reads[i]->place, *group.to, *group.layer) = std::move(weights[i]);
  }
  return OkStatus();
}

std::optional<ExpertRange> WeightLoader::WholeRun(
    int32_t layer, const ExpertRange& run) const {
  if (whole_ == nullptr) return std::nullopt;
  for (const ExpertRange& whole : whole_->layers[layer].experts) {
    if (run.begin >= whole.begin && run.end <= whole.end) return whole;
  }
  return std::nullopt;
}

Status WeightLoader::LoadExperts(int32_t layer, Rank& rank, MoeWeights& moe,
                                 const LoadProgress& progress) {
  const auto read_expert = [&](uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress) progress(done_bytes_, total_bytes_);
  };
  for (const ExpertRange& run : rank.plan.layers[layer].experts) {
    SLUICE_ASSIGN_OR_RETURN(
        auto experts, expert_loader_.Load(layer, run, rank.backend, read_expert,
                                          WholeRun(layer, run)));
    rank.loaded.bytes += experts.bytes();
    moe.experts.push_back(std::move(experts));
  }
  return OkStatus();
}

Status WeightLoader::LoadNext(const StageRange& range, Rank& rank,
                              const LoadProgress& progress) {
  const std::span<const WeightRead> reads(rank.reads);
  const size_t begin = rank.next;
  const int32_t layer = reads[begin].layer;
  size_t& end = rank.next;
  for (++end; layer >= 0 && end < reads.size(); ++end) {
    if (reads[end].layer != layer) break;
  }
  LayerWeights none;
  LayerWeights& of_layer =
      layer < 0 ? none : rank.loaded.layers[layer - range.first_layer];
  const Group group = {reads.subspan(begin, end - begin), &rank.loaded,
                       &of_layer};
  SLUICE_RETURN_IF_ERROR(LoadVectors(group, rank.backend, progress));
  SLUICE_RETURN_IF_ERROR(LoadMatrices(group, rank.backend, progress));
  if (layer < 0) return OkStatus();
  AddOnes(config_.layers[layer], rank.backend, of_layer);
  return OkStatus();
}

StatusOr<std::vector<RankWeights>> WeightLoader::Load(
    const StageRange& range, std::span<const RankPlan> plans,
    std::span<Backend* const> backends, const std::optional<RankPlan>& whole,
    const LoadProgress& progress) {
  whole_ = whole.has_value() ? &*whole : nullptr;
  std::vector<Rank> ranks;
  for (size_t r = 0; r < plans.size(); ++r) {
    Rank& rank = ranks.emplace_back(
        Rank{plans[r], *backends[r], reads_.All(range, plans[r])});
    rank.loaded.layers.resize(range.last_layer - range.first_layer);
  }
  const auto is_at = [](const Rank& rank, int32_t layer) {
    return rank.next < rank.reads.size() &&
           rank.reads[rank.next].layer == layer;
  };
  for (Rank& rank : ranks) {
    while (is_at(rank, -1)) {
      SLUICE_RETURN_IF_ERROR(LoadNext(range, rank, progress));
    }
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (Rank& rank : ranks) {
      if (is_at(rank, i)) {
        SLUICE_RETURN_IF_ERROR(LoadNext(range, rank, progress));
      }
    }
    for (Rank& rank : ranks) {
      if (!config_.is_sparse(i)) continue;
      MoeWeights& moe = rank.loaded.layers[i - range.first_layer].moe;
      SLUICE_RETURN_IF_ERROR(LoadExperts(i, rank, moe, progress));
    }
  }
  packed_.DropWhole();
  std::vector<RankWeights> loaded;
  for (Rank& rank : ranks) loaded.push_back(std::move(rank.loaded));
  return loaded;
}

}  // namespace sluice
