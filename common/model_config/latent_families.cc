#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/family_readers.h"
#include "common/model_config/model_families.h"
#include "common/model_config/rope_frequencies.h"

namespace sluice {
namespace {

// Far above released models.
constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxHeadPart = 1024;
// The RoPE behind a latent row's rotated part, and the latent part, are one
// head of the KV cache.
constexpr int64_t kMaxRow = 1 << 12;
constexpr int64_t kMaxMtpLayers = 64;
constexpr int64_t kMaxIndexHeads = 1024;
constexpr int64_t kMaxIndexed = 1 << 24;

Status ReadLatentSizes(const ConfigReader& reader, LatentConfig& latent) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int("kv_lora_rank", kMaxRow - kMaxHeadPart, {}, latent.kv_rank));
  // A null is a product without a latent row.
  SLUICE_RETURN_IF_ERROR(
      reader.Int("q_lora_rank", 0, kMaxRank, 0, latent.q_rank));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("qk_nope_head_dim", kMaxHeadPart, {}, latent.nope_dim));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("qk_rope_head_dim", 2, kMaxHeadPart, {}, latent.rope_dim));
  if (latent.rope_dim % 2 != 0) {
    return InvalidArgument("qk_rope_head_dim ", latent.rope_dim, " is odd");
  }
  SLUICE_RETURN_IF_ERROR(
      reader.Int("v_head_dim", kMaxHeadPart, {}, latent.value_dim));
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("kv_b_split", false, latent.split));  // of a GGUF
  // transformers' norms of both latent rows have it, whatever rms_norm_eps is.
  latent.norm_eps = 1e-6;
  return OkStatus();
}

// Reads the attention of all layers, and its RoPE.
Status ReadLatentAttention(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("attention_bias", false));
  LatentConfig latent;
  SLUICE_RETURN_IF_ERROR(ReadLatentSizes(reader, latent));
  RopeConfig& rope = parsed.ropes[0];
  rope.rotary_dim = latent.rope_dim;
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("rope_interleave", true, rope.interleaved));
  SLUICE_RETURN_IF_ERROR(
      ReadRope(reader, "full_attention", latent.rope_dim, rope));
  if (rope.rotary_dim != latent.rope_dim) {
    return InvalidArgument("partial_rotary_factor rotates ", rope.rotary_dim,
                           " of the ", latent.rope_dim,
                           " dimensions of qk_rope_head_dim, supported are "
                           "all");
  }
  double scale =
      1.0 / std::sqrt(static_cast<double>(latent.nope_dim + latent.rope_dim));
  if (rope.scaling.mscale_all_dim != 0.0) {
    const double mscale =
        YarnScale(rope.scaling.factor, rope.scaling.mscale_all_dim);
    scale *= mscale * mscale;
  }
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.latent = latent;
    layer.attention.num_kv_heads = 1;
    layer.attention.head_dim = latent.rope_dim + latent.kv_rank;
    layer.attention.scale = scale;
  }
  // Files without the key may have layers behind the last or not.
  return reader.Int("num_nextn_predict_layers", 0, kMaxMtpLayers, 1,
                    parsed.num_nextn_predict_layers);
}

// Reads a list with "full" for the layers that have an indexer of their own,
// and "shared" for the rest.
StatusOr<std::vector<bool>> ReadIndexerTypes(const char* key, const Json& types,
                                             int32_t num_layers) {
  std::vector<bool> own;
  for (const Json& type : types) {
    if (type != "full" && type != "shared") break;
    own.push_back(type == "full");
  }
  if (own.size() == types.size() && std::ssize(own) >= num_layers) {
    own.resize(static_cast<size_t>(num_layers));
    return own;
  }
  return InvalidArgument(key, " is ", DumpJson(types).substr(0, 200),
                         ", expected \"full\" or \"shared\" for each of ",
                         num_layers, " layers");
}

// Returns which layers have an indexer of their own: those of indexer_types'
// "full" or of index_topk_pattern's F, else every index_topk_freq-th from layer
// index_skip_topk_offset - 1 on, and all before it.
StatusOr<std::vector<bool>> ReadIndexedLayers(const ConfigReader& reader,
                                              int32_t num_layers) {
  std::vector<bool> own;
  for (const char* key : {"indexer_types", "index_topk_pattern"}) {
    const Json* types = reader.Find(key);
    if (types != nullptr && types->is_array()) {
      return ReadIndexerTypes(key, *types, num_layers);
    }
  }
  const Json* pattern = reader.Find("index_topk_pattern");
  if (pattern != nullptr) {
    std::string letters;
    if (pattern->is_string()) letters = pattern->get<std::string>();
    if (static_cast<int32_t>(letters.size()) < num_layers ||
        letters.find_first_not_of("FS") != std::string::npos) {
      return InvalidArgument(
          "index_topk_pattern is ", DumpJson(*pattern).substr(0, 200),
          ", expected a letter, F or S, for each of ", num_layers, " layers");
    }
    for (int32_t i = 0; i < num_layers; ++i) own.push_back(letters[i] == 'F');
    return own;
  }
  int32_t freq = 1;
  int32_t offset = 2;
  SLUICE_RETURN_IF_ERROR(reader.Int("index_topk_freq", kMaxIndexed, 1, freq));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("index_skip_topk_offset", 0, kMaxIndexed, 2, offset));
  for (int32_t i = 0; i < num_layers; ++i) {
    own.push_back(std::max(i - offset + 1, 0) % freq == 0);
  }
  return own;
}

// Reads the indexer of latent attention. `interleaved`: RoPE's pairs where no
// key tells.
Status ReadIndexer(const ConfigReader& reader, bool interleaved,
                   ModelConfig& parsed) {
  const LatentConfig& latent = parsed.layers[0].attention.latent;
  if (latent.q_rank == 0) {
    return InvalidArgument("q_lora_rank is 0, an indexer needs q's latent row");
  }
  IndexerConfig indexer;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("index_topk", kMaxIndexed, {}, indexer.top_k));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("index_n_heads", kMaxIndexHeads, {}, indexer.num_heads));
  SLUICE_RETURN_IF_ERROR(reader.Int("index_head_dim", latent.rope_dim,
                                    kMaxHeadPart, {}, indexer.head_dim));
  indexer.norm_eps = 1e-6;  // whatever rms_norm_eps is
  RopeConfig rope = parsed.ropes[0];
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("indexer_rope_interleave", interleaved, rope.interleaved));
  if (rope.interleaved != parsed.ropes[0].interleaved) {
    indexer.rope = static_cast<int32_t>(parsed.ropes.size());
    parsed.ropes.push_back(rope);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> own,
                          ReadIndexedLayers(reader, parsed.num_layers()));
  if (!own[0]) {
    return InvalidArgument(
        "index_topk_pattern: layer 0 has no indexer, and no layer is before "
        "it");
  }
  for (size_t i = 0; i < parsed.layers.size(); ++i) {
    IndexerConfig& to = parsed.layers[i].attention.latent.indexer;
    to = indexer;
    to.own = own[i];
  }
  return OkStatus();
}

// Reads mlp_layer_types, "dense" or "sparse" for each layer; absent: the first
// `dense` layers are dense.
Status SetExpertsByTypes(const ConfigReader& reader, int32_t dense,
                         const MoeConfig& moe, ModelConfig& parsed) {
  const Json* types = reader.Find("mlp_layer_types");
  if (types != nullptr &&
      (!types->is_array() || types->size() < parsed.layers.size())) {
    return InvalidArgument("mlp_layer_types is no list of at least ",
                           parsed.layers.size(), " layers' types");
  }
  for (size_t i = 0; i < parsed.layers.size(); ++i) {
    const Json type = types != nullptr                 ? (*types)[i]
                      : i < static_cast<size_t>(dense) ? Json("dense")
                                                       : Json("sparse");
    if (type == "sparse") {
      parsed.layers[i].moe = moe;
    } else if (type != "dense") {
      return InvalidArgument("mlp_layer_types has ", DumpJson(type),
                             " for layer ", i,
                             "; supported are dense and sparse");
    }
  }
  return OkStatus();
}

}  // namespace

Status ReadDeepseekV2(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadLatentAttention(reader, parsed));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("scoring_func", "softmax"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("moe_layer_freq", 1));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadSharedMixture(reader, parsed.num_layers(), moe));
  moe.group_best = 1;
  const Json* method = reader.Find("topk_method");
  if (method == nullptr || *method == "greedy") {
    moe.num_groups = moe.groups_per_token = 1;
  } else if (*method != "group_limited_greedy") {
    return InvalidArgument("topk_method ", DumpJson(*method),
                           " is not supported, only \"greedy\" and "
                           "\"group_limited_greedy\"");
  }
  // It has no effect in transformers' class: weights are never normalised.
  reader.Find("norm_topk_prob");
  return SetExpertsBehindDense(reader, 0, moe, parsed);
}

Status ReadDeepseekV32(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadDeepseekV3(reader, parsed));
  return ReadIndexer(reader, /*interleaved=*/false, parsed);
}

Status ReadGlmMoeDsa(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadLatentAttention(reader, parsed));
  SLUICE_RETURN_IF_ERROR(ReadIndexer(reader, /*interleaved=*/true, parsed));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("topk_method", "noaux_tc"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("scoring_func", "sigmoid"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("moe_layer_freq", 1));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadSigmoidExperts(reader, parsed.num_layers(), moe));
  int32_t dense = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("first_k_dense_replace", 0,
                                    parsed.num_layers(),
                                    std::min(3, parsed.num_layers()), dense));
  return SetExpertsByTypes(reader, dense, moe, parsed);
}

Status ReadDeepseekV3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadLatentAttention(reader, parsed));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("scoring_func", "sigmoid"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("topk_method", "noaux_tc"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("moe_layer_freq", 1));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadSigmoidExperts(reader, parsed.num_layers(), moe));
  return SetExpertsBehindDense(reader, 3, moe, parsed);
}

Status ReadGlm4MoeLite(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadLatentAttention(reader, parsed));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("topk_method", "noaux_tc"));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadSigmoidExperts(reader, parsed.num_layers(), moe));
  // It has no effect in transformers' class.
  reader.Find("first_k_dense_replace");
  return SetExpertsByTypes(reader, 1, moe, parsed);
}

}  // namespace sluice
