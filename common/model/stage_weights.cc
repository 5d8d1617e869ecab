// Size: from rows of a table to weights on a device, one step after another.
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

int64_t Rows(const Slice& slice) { return slice.row_end - slice.row_begin; }
int64_t Cols(const Slice& slice) { return slice.col_end - slice.col_begin; }

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

}  // namespace

WeightLoader::Read WeightLoader::ReadHeads(int32_t layer,
                                           const WeightRows& weight,
                                           const RankPlan& plan) const {
  const TensorRow& row = weight.first();
  const AttentionConfig& attention = config_.layers[layer].attention;
  const LatentConfig& latent = attention.latent;
  const std::vector<Dimension> shape = DimensionsOf(row, config_, layer);
  int64_t rows = 1;  // of a head in the tensor
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i].size;
  rows /= attention.num_heads;
  int64_t begin = 0;
  int64_t end = rows;
  if (row.taken == RowsTaken::kHeadKeys) end = latent.nope_dim;
  if (row.taken == RowsTaken::kHeadValues) begin = latent.nope_dim;
  Read read = {layer,
               weight.place,
               /*is_vector=*/false,
               /*is_apart=*/true,
               row.taken == RowsTaken::kHeadKeys,
               {}};
  const LayerShare& share = plan.layers[static_cast<size_t>(layer)];
  const WeightType type = TypesOf(weight, layer, file_, mode_)[0];
  for (int64_t head = share.head_begin; head < share.head_end; ++head) {
    read.pieces.push_back(
        {NameOf(row, layer),
         {head * rows + begin, head * rows + end, 0, shape.back().size},
         type});
  }
  return read;
}

WeightLoader::Read WeightLoader::ReadOf(int32_t layer, const WeightRows& weight,
                                        const RankPlan& plan) const {
  if (weight.place == WeightPlace::kHeadKeys ||
      weight.place == WeightPlace::kHeadValues) {
    return ReadHeads(layer, weight, plan);
  }
  Read read = {layer, weight.place, weight.first().is_vector()};
  const auto types = TypesOf(weight, layer, file_, mode_);
  std::vector<Piece> late;
  for (size_t part = 0; part < types.size(); ++part) {
    const TensorRow* row = weight.rows[part];
    const std::string from = NameOf(*row, layer);
    const std::vector<Dimension> shape = DimensionsOf(*row, config_, layer);
    const bool is_row = read.is_vector && row->stored != StoredAs::kTaps;
    Slice slice = {0, is_row ? 1 : shape[0].size, 0, shape.back().size};
    if (row->taken == RowsTaken::kLastRunFirst) {
      const int64_t first = shape[0].size - shape[0].runs.back().size;
      Slice rest = slice;
      slice.row_begin = rest.row_end = first;
      read.pieces.push_back({from, slice, types[part]});
      read.pieces.push_back({from, rest, types[part]});
      continue;
    }
    if (row->cut == RankCut::kNone) {
      read.pieces.push_back({from, slice, types[part]});
      continue;
    }
    if (row->cut == RankCut::kGroups) {
      AddGroups(*row, layer, plan, {from, slice, types[part]}, read, late);
      continue;
    }
    const bool cuts_rows = row->cut == RankCut::kRows && shape.size() > 1 &&
                           !row->shape.starts_with("1 ");
    const Dimension& cut = cuts_rows ? shape[0] : shape.back();
    int64_t begin = 0;
    for (const Dimension::Run& run : cut.runs) {
      const OwnRange own = OwnRangeOf(plan, config_, layer, run.letter);
      (cuts_rows ? slice.row_begin : slice.col_begin) = begin + own.begin;
      (cuts_rows ? slice.row_end : slice.col_end) = begin + own.end;
      read.pieces.push_back({from, slice, types[part]});
      begin += run.size;
    }
  }
  std::ranges::move(late, std::back_inserter(read.pieces));
  return read;
}

// Adds the pieces of rows that stand group by group, each with its part of
// every run: run by run. A gate of attention comes last of its weight.
void WeightLoader::AddGroups(const TensorRow& row, int32_t layer,
                             const RankPlan& plan, Piece piece, Read& read,
                             std::vector<Piece>& late) const {
  const Dimension all = DimensionsOf(row, config_, layer)[0];
  const auto at = static_cast<size_t>(layer);
  const bool is_gate = row.place == WeightPlace::kQkv;
  const LayerConfig& config = config_.layers[at];
  const int64_t groups = is_gate ? config.attention.num_heads
                                 : config.state.mixer.shape.num_key_heads;
  int64_t begin = 0;
  for (size_t r = 0; r < all.runs.size(); ++r) {
    const Dimension::Run& run = all.runs[r];
    const int64_t rows = run.size / groups;
    const OwnRange own = OwnRangeOf(plan, config_, layer, run.letter);
    std::vector<Piece>& to = is_gate && r > 0 ? late : read.pieces;
    if (own.begin == own.end) {  // a rank without such heads
      piece.slice.row_begin = piece.slice.row_end = 0;
      to.push_back(piece);
    }
    for (int64_t group = own.begin / rows; group < own.end / rows; ++group) {
      piece.slice.row_begin = group * (all.size / groups) + begin;
      piece.slice.row_end = piece.slice.row_begin + rows;
      to.push_back(piece);
    }
    begin += rows;
  }
}

WeightLoader::Read WeightLoader::TiedHead(const RankPlan& plan) const {
  TensorRow rows = WeightsOf(config_, -1, ExpertStorage::kSeparate)[0].first();
  rows.cut = RankCut::kRows;
  return ReadOf(-1, {WeightPlace::kHead, {&rows}}, plan);
}

std::vector<WeightLoader::Read> WeightLoader::Reads(
    const StageRange& range, const RankPlan& plan) const {
  const bool has_embedding = range.is_first && plan.rank == 0;
  std::vector<Read> reads;
  for (const WeightRows& weight :
       WeightsOf(config_, -1, ExpertStorage::kSeparate)) {
    const bool is_here = IsEmbedding(weight.place)      ? has_embedding
                         : IsOfFirstStage(weight.place) ? range.is_first
                                                        : range.is_last;
    if (is_here) {
      reads.push_back(ReadOf(-1, weight, plan));
    }
  }
  if (range.is_last && config_.tie_word_embeddings && !has_embedding) {
    reads.push_back(TiedHead(plan));
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const WeightRows& weight :
         WeightsOf(config_, i, ExpertStorage::kSeparate)) {
      if (weight.first().cut == RankCut::kExperts) continue;
      reads.push_back(ReadOf(i, weight, plan));
    }
  }
  return reads;
}

uint64_t WeightLoader::StoredBytes(const Piece& piece) const {
  const auto all = static_cast<double>(file_.Find(piece.from)->elements());
  return static_cast<uint64_t>(
      static_cast<double>(file_.StoredBytes(piece.from)) *
      static_cast<double>(piece.slice.elements()) / all);
}

void WeightLoader::Reading::Allocate(BufferPool* pool) {
  for (HostWeight& part : parts) {
    part = HostWeight(part.type, part.rows, part.cols, pool);
  }
}

WeightLoader::Reading WeightLoader::ReadingOf(const Read& read) const {
  Reading reading;
  const Piece* last = nullptr;
  for (const Piece& piece : read.pieces) {
    if (last == nullptr || last->type != piece.type || read.is_apart) {
      HostWeight& part = reading.parts.emplace_back();
      part.type = piece.type;
      // A vector is one column.
      part.cols = read.is_vector ? 1 : Cols(read.pieces[0].slice);
    }
    last = &piece;
    HostWeight& part = reading.parts.back();
    const int64_t begin = part.rows;
    part.rows += read.is_vector ? piece.slice.elements() : Rows(piece.slice);
    reading.stored_bytes += StoredBytes(piece);
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
  for (const Read& read : Reads(range, plan)) {
    for (const Piece& piece : read.pieces) total_bytes_ += StoredBytes(piece);
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
  for (const Read& read : Reads(range, plan)) {
    for (const Piece& piece : read.pieces) {
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
    std::span<const Read* const> reads, Backend& backend,
    const LoadProgress& progress) {
  PackedWeights::Weights made;
  std::vector<Reading> readings;
  for (const Read* read : reads) readings.push_back(ReadingOf(*read));
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

void WeightLoader::Change(const Read& read, HostWeight& vector) const {
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
  for (const Read& read : group.reads) {
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

Status WeightLoader::LoadMatrices(const Group& group, Backend& backend,
                                  const LoadProgress& progress) {
  std::vector<const Read*> reads;
  const int32_t layer = group.reads[0].layer;
  PackedWeights::Group packed = {layer < 0 ? "rows" : Cat("layer-", layer), ""};
  uint64_t done = done_bytes_;
  for (const Read& read : group.reads) {
    if (read.is_vector) continue;
    reads.push_back(&read);
    for (const Piece& piece : read.pieces) {
      const Slice& slice = piece.slice;
      packed.contents +=
          Cat(piece.from, " [", slice.row_begin, ", ", slice.row_end, ") x [",
              slice.col_begin, ", ", slice.col_end, ") ",
              FormatOf(piece.type).name, "\n");
      done += StoredBytes(piece);
    }
    packed.contents += read.is_transposed ? "transposed\n" : "\n";
  }
  if (reads.empty()) return OkStatus();
  const auto pack = [&] { return Pack(reads, backend, progress); };
  SLUICE_ASSIGN_OR_RETURN(auto weights, packed_.Load(packed, backend, pack));
  done_bytes_ = done;  // of mapped weights, too
  if (progress) progress(done_bytes_, total_bytes_);
  for (size_t i = 0; i < reads.size(); ++i) {
    group.to->bytes += weights[i]->bytes();
    *MatrixAt(reads[i]->place, *group.to, *group.layer) = std::move(weights[i]);
  }
  return OkStatus();
}

Status WeightLoader::LoadExperts(const StageRange& range, const RankPlan& plan,
                                 Backend& backend, const LoadProgress& progress,
                                 RankWeights& to) {
  const auto read_expert = [&](uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress) progress(done_bytes_, total_bytes_);
  };
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    if (!config_.is_sparse(i)) continue;
    MoeWeights& moe = to.layers[i - range.first_layer].moe;
    for (const ExpertRange& run : plan.layers[i].experts) {
      SLUICE_ASSIGN_OR_RETURN(
          auto experts, expert_loader_.Load(i, run, backend, read_expert));
      to.bytes += experts.bytes();
      moe.experts.push_back(std::move(experts));
    }
  }
  return OkStatus();
}

StatusOr<RankWeights> WeightLoader::Load(const StageRange& range,
                                         const RankPlan& plan, Backend& backend,
                                         const LoadProgress& progress) {
  RankWeights loaded;
  LayerWeights none;
  loaded.layers.resize(range.last_layer - range.first_layer);
  const std::vector<Read> reads = Reads(range, plan);
  for (size_t begin = 0, end = 0; begin < reads.size(); begin = end) {
    const int32_t layer = reads[begin].layer;
    for (end = begin + 1; layer >= 0 && end < reads.size(); ++end) {
      if (reads[end].layer != layer) break;
    }
    const Group group = {
        std::span(reads).subspan(begin, end - begin), &loaded,
        layer < 0 ? &none : &loaded.layers[layer - range.first_layer]};
    SLUICE_RETURN_IF_ERROR(LoadVectors(group, backend, progress));
    SLUICE_RETURN_IF_ERROR(LoadMatrices(group, backend, progress));
    if (layer >= 0) AddOnes(config_.layers[layer], backend, *group.layer);
  }
  SLUICE_RETURN_IF_ERROR(LoadExperts(range, plan, backend, progress, loaded));
  return loaded;
}

}  // namespace sluice
