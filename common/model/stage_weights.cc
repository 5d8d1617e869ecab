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
    total += of(layer.qkv) + of(layer.o) + of(layer.mlp.gate_up) +
             of(layer.mlp.down) + of(layer.moe.router) +
             of(layer.moe.shared.gate_up) + of(layer.moe.shared.down);
    for (const ExpertWeights& run : layer.moe.experts) total += run.bytes();
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
  const auto norm = [&](const char* name, DeviceVector& to) {
    reads.push_back(
        {{{prefix + name, {0, 1, 0, config_.hidden_size}}}, nullptr, &to});
  };
  norm("input_layernorm.weight", weights.attention_norm);
  AddAttentionReads(prefix + "self_attn.", plan, weights, reads);
  norm("post_attention_layernorm.weight", weights.mlp_norm);
  if (config_.sandwich_norms) {
    norm("post_self_attn_layernorm.weight", weights.post_attention_norm);
    norm("post_mlp_layernorm.weight", weights.post_mlp_norm);
  }
  if (config_.is_sparse(layer)) {
    return AddMoeReads(prefix, plan, weights.moe, reads);
  }
  AddMlpReads(prefix + "mlp.", plan.mlp,
              config_.fused_gate_up ? config_.intermediate_size : 0,
              weights.mlp, reads);
}

void WeightLoader::AddAttentionReads(const std::string& prefix,
                                     const RankPlan& plan,
                                     LayerWeights& weights,
                                     std::vector<Read>& reads) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t dim = config_.head_dim;
  struct Projection {
    const char* name;
    int64_t begin;
    int64_t end;
  };
  const int64_t kv_begin = plan.kv_head_begin * dim;
  const int64_t kv_end = plan.kv_head_end * dim;
  Read qkv = {{}, &weights.qkv};
  Read bias = {{}, nullptr, &weights.qkv_bias};
  for (const Projection& p :
       {Projection{"q_proj.", plan.head_begin * dim, plan.head_end * dim},
        Projection{"k_proj.", kv_begin, kv_end},
        Projection{"v_proj.", kv_begin, kv_end}}) {
    const std::string name = prefix + p.name;
    qkv.pieces.push_back({name + "weight", {p.begin, p.end, 0, hidden}});
    bias.pieces.push_back({name + "bias", {0, 1, p.begin, p.end}});
  }
  reads.push_back(std::move(qkv));
  if (config_.qkv_bias) reads.push_back(std::move(bias));
  const auto vector = [&](const char* name, int64_t begin, int64_t end,
                          DeviceVector& to) {
    reads.push_back({{{prefix + name, {0, 1, begin, end}}}, nullptr, &to});
  };
  if (config_.qk_norm) {
    vector("q_norm.weight", 0, dim, weights.q_norm);
    vector("k_norm.weight", 0, dim, weights.k_norm);
  }
  if (config_.attention_sinks) {
    vector("sinks", plan.head_begin, plan.head_end, weights.sinks);
  }
  const RowShards& o = plan.attention;
  reads.push_back(
      {{{prefix + "o_proj.weight", {0, hidden, o.col_begin, o.col_end}}},
       &weights.o});
  if (config_.o_bias) vector("o_proj.bias", 0, hidden, weights.o_bias);
}

// `fused_rows` above 0: gate and up are one tensor, up from this row on.
void WeightLoader::AddMlpReads(const std::string& prefix,
                               const RowShards& shards, int64_t fused_rows,
                               MlpWeights& weights,
                               std::vector<Read>& reads) const {
  const int64_t hidden = config_.hidden_size;
  const bool fused = fused_rows > 0;
  const auto rows = [&](const char* name, int64_t from) {
    return Piece{prefix + name,
                 {from + shards.col_begin, from + shards.col_end, 0, hidden}};
  };
  reads.push_back(
      {{rows(fused ? "gate_up_proj.weight" : "gate_proj.weight", 0),
        rows(fused ? "gate_up_proj.weight" : "up_proj.weight", fused_rows)},
       &weights.gate_up});
  reads.push_back({{{prefix + "down_proj.weight",
                     {0, hidden, shards.col_begin, shards.col_end}}},
                   &weights.down});
}

void WeightLoader::AddMoeReads(const std::string& prefix, const RankPlan& plan,
                               MoeWeights& weights,
                               std::vector<Read>& reads) const {
  const MoeConfig& moe = config_.moe;
  const std::string router = prefix + moe.router;
  const int64_t experts = moe.num_experts;
  reads.push_back({{{router + ".weight", {0, experts, 0, config_.hidden_size}}},
                   &weights.router,
                   nullptr,
                   /*always_f32=*/true});
  if (moe.router_bias) {
    reads.push_back({{{router + ".bias", {0, 1, 0, experts}}},
                     nullptr,
                     &weights.router_bias});
  }
  if (moe.correction_bias) {
    reads.push_back(
        {{{router + ".e_score_correction_bias", {0, 1, 0, experts}}},
         nullptr,
         &weights.correction});
  }
  if (moe.shared_intermediate_size > 0) {
    AddMlpReads(prefix + "mlp.shared_experts.", plan.shared_mlp, 0,
                weights.shared, reads);
  }
}

uint64_t WeightLoader::StoredBytes(const Piece& piece) const {
  const TensorInfo& tensor = *file_.Find(piece.name);
  return static_cast<uint64_t>(static_cast<double>(tensor.stored_bytes()) *
                               static_cast<double>(piece.slice.elements()) /
                               static_cast<double>(tensor.elements()));
}

WeightType WeightLoader::TypeOf(const Read& read) const {
  if (read.vector != nullptr || read.always_f32 || mode_ == WeightsMode::kF32) {
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
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const ExpertRange& run : plan.experts[i]) {
      total_bytes_ += expert_loader_.StoredBytes(i, run);
    }
  }
}

uint64_t WeightLoader::HeldBytes(const StageRange& range,
                                 const RankPlan& plan) const {
  RankWeights unused;
  uint64_t bytes = 0;
  for (const Read& read : Reads(range, plan, unused)) {
    for (const Piece& piece : read.pieces) {
      bytes += ElementBytes(TypeOf(read)) *
               static_cast<uint64_t>(piece.slice.elements());
    }
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const ExpertRange& run : plan.experts[i]) {
      bytes += expert_loader_.HeldBytes(i, run);
    }
  }
  return bytes;
}

Status WeightLoader::LoadOne(const Read& read, Backend& backend,
                             const LoadProgress& progress) {
  HostWeight weight;
  weight.type = TypeOf(read);
  int64_t elements = 0;
  for (const Piece& piece : read.pieces) elements += piece.slice.elements();
  weight.data = Buffer(ElementBytes(weight.type) * elements);
  std::byte* out = weight.data.data();
  for (const Piece& piece : read.pieces) {
    SLUICE_RETURN_IF_ERROR(ReadPiece(piece, weight.type, out, progress));
    out += ElementBytes(weight.type) * piece.slice.elements();
  }
  if (read.vector != nullptr) {
    *read.vector = backend.Allocate(weight.data.size());
    backend.CopyIn(weight.data.as<float>(),
                   {read.vector->data(), 1, elements, elements});
    return OkStatus();
  }
  weight.cols = Cols(read.pieces[0].slice);
  for (const Piece& piece : read.pieces) weight.rows += Rows(piece.slice);
  used_bf16_ |= weight.type == WeightType::kBf16;
  *read.weight = backend.Pack(std::move(weight));
  return OkStatus();
}

StatusOr<RankWeights> WeightLoader::Load(const StageRange& range,
                                         const RankPlan& plan, Backend& backend,
                                         const LoadProgress& progress) {
  RankWeights loaded;
  for (const Read& read : Reads(range, plan, loaded)) {
    SLUICE_RETURN_IF_ERROR(LoadOne(read, backend, progress));
  }
  const auto read_expert = [&](uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress) progress(done_bytes_, total_bytes_);
  };
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    if (!config_.is_sparse(i)) continue;
    MoeWeights& moe = loaded.layers[i - range.first_layer].moe;
    for (const ExpertRange& run : plan.experts[i]) {
      SLUICE_ASSIGN_OR_RETURN(
          auto experts, expert_loader_.Load(i, run, backend, read_expert));
      moe.experts.push_back(std::move(experts));
    }
    // Those of other ranks and hosts are computed with the same.
    expert_loader_.NoteUsed(i, {0, plan.num_experts});
  }
  return loaded;
}

std::string WeightLoader::WeightsDtype() const {
  const bool bf16 = used_bf16_ || expert_loader_.used_bf16();
  const std::string plain = bf16 ? "bf16" : "f32";
  return expert_loader_.used_mxfp4() ? plain + "+mxfp4" : plain;
}

}  // namespace sluice
