#include "common/model_config/known_keys.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

// Keys that change nothing that a stage or the gateway computes, or that other
// rooms read.
constexpr std::string_view kNoEffect[] = {
    // Names, versions and code of other programs.
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "model_name",
    "tokenizer_class",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_flash_attention",
    "use_flash_attn",
    // Types in which other programs compute; how weights are stored, the files
    // tell.
    "dtype",
    "torch_dtype",
    "use_bfloat16",
    // Read beside the model's config: token ids by the gateway, the description
    // of the quantisation by the reader of weights, the name by all.
    "bos_token_id",
    "compression_config",
    "eos_token_id",
    "eod_token_id",
    "pad_token_id",
    "quantization_config",
    "sluice_model_name",
    "unk_token_id",
    // Training.
    "attention_dropout",
    "attn_dropout",
    "attn_pdrop",
    "aux_loss_alpha",
    "classifier_dropout",
    "dropout",
    "embd_pdrop",
    "embedding_dropout",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "init_std",
    "initializer_factor",
    "initializer_range",
    "layerdrop",
    "mlp_dropout",
    "moe_dropout",
    "output_router_logits",
    "resid_pdrop",
    "residual_dropout",
    "router_aux_loss_coef",
    "router_bias_update_speed",
    "router_jitter_noise",
    "router_z_loss_coef",
    "seq_aux",
    "input_jitter_noise",
    "moe_aux_loss_coef",
    "use_mtp_loss",
    // Said by other keys, too, or of the training's code alone.
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "chunk_size",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "expand",
    "experts_per_token",
    "initial_context_length",
    "layer_switch",
    "mamba_chunk_size",
    "mamba_ssm_dtype",
    "max_window_layers",
    "moe_capacity",
    "moe_layer_num_skipped",
    "moe_use_aux_free",
    "order_of_interleaved_layers",
    "residual_in_fp32",
    "time_step_floor",
    "time_step_max",
    "use_embedding_sharing",
    "use_mixed_mlp_moe",
    "use_pos_enc",
    // Layers that predict further tokens, which plain inference leaves aside.
    "mtp_num_hidden_layers",
    "mtp_transformer_layers",
    "mtp_use_dedicated_embeddings",
    "num_nextn_predict_layers",
    "num_mtp_modules",
    "use_mtp",
    // What other programs return or cache.
    "cache_implementation",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torchscript",
    "use_cache",
    // Other tasks than to go on with a text.
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "finetuning_task",
    "id2label",
    "is_decoder",
    "label2id",
    "num_labels",
    "prefix",
    "problem_type",
    "pruned_heads",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    // Sampling, which requests and generation_config.json tell.
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    // How matrices were split in pretraining: the file's are whole.
    "ep_size",
    "pretraining_tp",
    "tensor_parallel_size",
    // RoPE, which ReadRope reads.
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    // Images and sound, which are refused by name.
    "audio_token_id",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
    "audio_config",
};

// Keys within rope_scaling and rope_parameters that ParseRopeScaling and
// ReadRope know, those of images, and those of other programs.
constexpr std::string_view kWithinRope[] = {"rope_type",
                                            "type",
                                            "rope_theta",
                                            "factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "original_max_position_embeddings",
                                            "beta_fast",
                                            "beta_slow",
                                            "mscale",
                                            "mscale_all_dim",
                                            "attention_factor",
                                            "truncate",
                                            "short_factor",
                                            "long_factor",
                                            "alpha",
                                            "partial_rotary_factor",
                                            "divisors",
                                            "llama_4_scaling_beta",
                                            "finetuned",
                                            "mrope_section",
                                            "mrope_interleaved",
                                            "max_position_embeddings"};

// The keys of a GGUF's architecture: llama.cpp's own bookkeeping, and keys for
// other scalings than the file's. Text has the same number of a position in its
// three sections (dimension_sections), so that its RoPE is the plain one, and
// no image that the first layers add (n_deepstack_layers).
constexpr std::string_view kGgufNoEffect[] = {
    ".rope.scaling.finetuned",
    ".rope.scaling.original_context_length",
    ".rope.scaling.type",
    ".rope.scaling.factor",
    ".rope.scale_linear",
    ".tensor_data_layout",
    ".pooling_type",  // of embeddings (common/serving/pooling.h)
    ".attention.value_length",
    ".rope.dimension_count",
    ".attention.key_length_mla",
    ".rope.dimension_sections",
    ".n_deepstack_layers",
    ".vocab_size",
    ".context_length",
    ".expert_gating_func"};
constexpr std::string_view kGgufChanges[] = {
    ".attn_logit_softcapping",
    ".final_logit_softcapping",
    ".logit_scale",
    ".embedding_scale",
    ".residual_scale",
    ".attention.scale",
    ".attention.max_alibi_bias",
    ".attention.clamp_kqv",
    ".attention.causal",
    ".attention.q_lora_rank",
    ".attention.kv_lora_rank",
    ".attention.temperature_scale",
    ".attention.shared_kv_layers",
    ".rope.scaling.yarn_log_multiplier",
    ".ssm.state_size",
    ".ssm.conv_kernel",
    ".expert_weights_scale",
    ".swiglu_clamp_exp",
    ".attention.indexer.top_k",
    "xielu.alpha_p",
    "xielu.alpha_n",
    "xielu.beta",
    "xielu.eps"};
constexpr std::string_view kGgufPrefixes[] = {"general.", "quantize.", "split.",
                                              "tokenizer.chat_template"};
// The gateway reads the vocabulary's; ids and texts of marks for other tasks
// have no effect.
constexpr std::string_view kGgufTokenizer[] = {"model",
                                               "pre",
                                               "tokens",
                                               "token_type",
                                               "scores",
                                               "merges",
                                               "bos_token_id",
                                               "eos_token_id",
                                               "eot_token_id",
                                               "eom_token_id",
                                               "unknown_token_id",
                                               "padding_token_id",
                                               "seperator_token_id",
                                               "cls_token_id",
                                               "mask_token_id",
                                               "add_bos_token",
                                               "add_eos_token",
                                               "add_sep_token",
                                               "add_space_prefix",
                                               "remove_extra_whitespaces",
                                               "prefix_token_id",
                                               "suffix_token_id",
                                               "middle_token_id",
                                               "fim_pre_token_id",
                                               "fim_suf_token_id",
                                               "fim_mid_token_id",
                                               "fim_pad_token_id",
                                               "fim_rep_token_id",
                                               "fim_sep_token_id",
                                               "token_type_count"};

template <size_t N>
bool Has(const std::string_view (&keys)[N], std::string_view key) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

}  // namespace

bool HasNoEffect(std::string_view key) { return Has(kNoEffect, key); }

bool IsKnownWithinRope(std::string_view key) { return Has(kWithinRope, key); }

bool GgufHasNoEffect(std::string_view key) {
  constexpr std::string_view kTokenizer = "tokenizer.ggml.";
  if (Has(kGgufNoEffect, key)) return true;
  if (key.starts_with(kTokenizer)) {
    return Has(kGgufTokenizer, key.substr(kTokenizer.size()));
  }
  return std::any_of(
      std::begin(kGgufPrefixes), std::end(kGgufPrefixes),
      [&](std::string_view prefix) { return key.starts_with(prefix); });
}

bool GgufChangesModel(std::string_view key) { return Has(kGgufChanges, key); }

}  // namespace sluice
