#include "common/model/stage_weights.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

using kernels::WeightType;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

// One read between two calls of progress.
constexpr int64_t kReadBytes = int64_t{8} << 20;

size_t ElementBytes(WeightType type) {
  return type == WeightType::kBf16 ? 2 : 4;
}

int64_t Rows(const Slice& slice) { return slice.row_end - slice.row_begin; }
int64_t Cols(const Slice& slice) { return slice.col_end - slice.col_begin; }

}  // namespace

size_t RankWeights::bytes() const {
  const auto of = [](const std::unique_ptr<Weight>& weight) {
    return weight == nullptr ? size_t{0} : weight->bytes();
  };
  size_t total = of(embedding) + of(own_head);
  for (const LayerWeights& layer : layers) {
    total += of(layer.qkv) + of(layer.o) + of(layer.gate_up) + of(layer.down);
  }
  return total;
}

std::vector<WeightLoader::Read> WeightLoader::Reads(
    const StageRange& range, const RankPlan& plan, RankWeights& weights) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t vocab = config_.vocab_size;
  const std::string embedding = "model.embed_tokens.weight";
  std::vector<Read> reads;
  const bool has_embedding = range.is_first && plan.rank == 0;
  if (has_embedding) {
    reads.push_back({{{embedding, {0, vocab, 0, hidden}}}, &weights.embedding});
  }
  weights.layers.resize(range.last_layer - range.first_layer);
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    AddLayerReads(i, plan, weights.layers[i - range.first_layer], reads);
  }
  if (!range.is_last) return reads;
  reads.push_back({{{"model.norm.weight", {0, 1, 0, hidden}}},
                   nullptr,
                   &weights.final_norm});
  if (!(config_.tie_word_embeddings && has_embedding)) {
    const std::string head =
        config_.tie_word_embeddings ? embedding : "lm_head.weight";
    reads.push_back({{{head, {plan.vocab_begin, plan.vocab_end, 0, hidden}}},
                     &weights.own_head});
  }
  return reads;
}

void WeightLoader::AddLayerReads(int32_t layer, const RankPlan& plan,
                                 LayerWeights& weights,
                                 std::vector<Read>& reads) const {
  const std::string prefix = Cat("model.layers.", layer, ".");
  const int64_t hidden = config_.hidden_size;
  const int64_t dim = config_.head_dim;
  const auto rows = [&](const char* name, int64_t begin, int64_t end) {
    return Piece{prefix + name, {begin, end, 0, hidden}};
  };
  const auto cols = [&](const char* name, const RowShards& shards) {
    return Piece{prefix + name, {0, hidden, shards.col_begin, shards.col_end}};
  };
  const auto norm = [&](const char* name) {
    return Piece{prefix + name, {0, 1, 0, hidden}};
  };
  const int64_t kv_begin = plan.kv_head_begin * dim;
  const int64_t kv_end = plan.kv_head_end * dim;
  const RowShards& f = plan.mlp;
  reads.push_back(
      {{norm("input_layernorm.weight")}, nullptr, &weights.attention_norm});
  reads.push_back({{rows("self_attn.q_proj.weight", plan.head_begin * dim,
                         plan.head_end * dim),
                    rows("self_attn.k_proj.weight", kv_begin, kv_end),
                    rows("self_attn.v_proj.weight", kv_begin, kv_end)},
                   &weights.qkv});
  reads.push_back(
      {{cols("self_attn.o_proj.weight", plan.attention)}, &weights.o});
  reads.push_back(
      {{norm("post_attention_layernorm.weight")}, nullptr, &weights.mlp_norm});
  reads.push_back({{rows("mlp.gate_proj.weight", f.col_begin, f.col_end),
                    rows("mlp.up_proj.weight", f.col_begin, f.col_end)},
                   &weights.gate_up});
  reads.push_back({{cols("mlp.down_proj.weight", f)}, &weights.down});
}

uint64_t WeightLoader::StoredBytes(const Piece& piece) const {
  const TensorInfo& tensor = *file_.Find(piece.name);
  return static_cast<uint64_t>(static_cast<double>(tensor.stored_bytes()) *
                               static_cast<double>(piece.slice.elements()) /
                               static_cast<double>(tensor.elements()));
}

WeightType WeightLoader::TypeOf(const Read& read) const {
  if (read.norm != nullptr || mode_ == WeightsMode::kF32) {
    return WeightType::kF32;
  }
  if (mode_ == WeightsMode::kBf16) return WeightType::kBf16;
  const bool all_bf16 = std::all_of(
      read.pieces.begin(), read.pieces.end(), [&](const Piece& piece) {
        return file_.Find(piece.name)->dtype == DType::kBF16;
      });
  return all_bf16 ? WeightType::kBf16 : WeightType::kF32;
}

Status WeightLoader::ReadPiece(const Piece& piece, WeightType type,
                               std::byte* out, const LoadProgress& progress) {
  const int64_t cols = Cols(piece.slice);
  if (piece.slice.elements() == 0) return OkStatus();
  const size_t row_bytes = ElementBytes(type) * cols;
  const int64_t step =
      std::max<int64_t>(1, kReadBytes / static_cast<int64_t>(row_bytes));
  const uint64_t bytes = StoredBytes(piece);
  for (int64_t row = 0; row < Rows(piece.slice); row += step) {
    Slice slice = piece.slice;
    slice.row_begin = piece.slice.row_begin + row;
    slice.row_end = std::min(piece.slice.row_end, slice.row_begin + step);
    std::byte* to = out + row * row_bytes;
    SLUICE_RETURN_IF_ERROR(
        type == WeightType::kBf16
            ? file_.ReadBf16(piece.name, slice, reinterpret_cast<uint16_t*>(to))
            : file_.ReadF32(piece.name, slice, reinterpret_cast<float*>(to)));
    if (progress) {
      const int64_t read = row + Rows(slice);
      progress(done_bytes_ + bytes * read / Rows(piece.slice), total_bytes_);
    }
  }
  done_bytes_ += bytes;
  return OkStatus();
}

void WeightLoader::Announce(const StageRange& range, const RankPlan& plan) {
  RankWeights unused;
  for (const Read& read : Reads(range, plan, unused)) {
    for (const Piece& piece : read.pieces) total_bytes_ += StoredBytes(piece);
  }
}

StatusOr<RankWeights> WeightLoader::Load(const StageRange& range,
                                         const RankPlan& plan, Backend& backend,
                                         const LoadProgress& progress) {
  RankWeights loaded;
  for (const Read& read : Reads(range, plan, loaded)) {
    HostWeight weight;
    weight.type = TypeOf(read);
    weight.cols = Cols(read.pieces[0].slice);
    for (const Piece& piece : read.pieces) weight.rows += Rows(piece.slice);
    const size_t row_bytes = ElementBytes(weight.type) * weight.cols;
    weight.data = Buffer(row_bytes * weight.rows);
    std::byte* out = weight.data.data();
    for (const Piece& piece : read.pieces) {
      SLUICE_RETURN_IF_ERROR(ReadPiece(piece, weight.type, out, progress));
      out += row_bytes * Rows(piece.slice);
    }
    if (read.norm != nullptr) {
      *read.norm = backend.Allocate(weight.data.size());
      backend.CopyIn(weight.data.as<float>(),
                     {(*read.norm)->data(), 1, weight.cols, weight.cols});
    } else {
      used_bf16_ |= weight.type == WeightType::kBf16;
      *read.weight = backend.Pack(std::move(weight));
    }
  }
  return loaded;
}

}  // namespace sluice
