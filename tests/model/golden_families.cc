#include "tests/model/golden_families.h"

#include <algorithm>

#include "tests/testing/golden_model.h"

namespace sluice::testing {

std::string Family::Name() const {
  std::string out = name;
  std::replace(out.begin(), out.end(), '-', '_');
  if (context > 0) out += "ShortContext";
  if (first > 0) out += "LongContext";
  return out;
}

PipelineOptions Family::Cut(int32_t stages) const {
  PipelineOptions options;
  options.stage.model_path = GoldenModel(name);
  options.stage.threads = 1;
  options.stage.kv_blocks = 256;
  options.stage.max_context = context;
  options.stages = stages;
  if (second_stage > 0) {
    options.stages = std::min(stages, 2);
    if (options.stages == 2) options.first_layers = {0, second_stage};
  }
  return options;
}

std::ostream& operator<<(std::ostream& out, const Family& family) {
  out << family.name;
  if (family.context > 0) out << "_in_" << family.context;
  return out;
}

std::vector<Family> FirstGoldenFamilies() {
  return {Family{"llama2-bf16-sharded"},
          Family{"llama3-tied"},
          Family{"qwen3"},
          Family{"glm4"},
          Family{"qwen3_moe"},
          Family{"glm4_moe-46"},
          Family{"glm4_moe-air"},
          Family{"gpt_oss"},
          Family{"gpt_oss-mxfp4"}};
}

std::vector<Family> GoldenFamilies() {
  return {Family{"mistral"},
          Family{"mistral-window"},
          Family{"ministral3"},
          Family{"qwen2"},
          Family{"seed_oss"},
          Family{"granite"},
          Family{"ernie4_5"},
          Family{"hunyuan_v1_dense"},
          Family{"glm"},
          Family{"phi3", 112, 0, 3},
          Family{"phi3", 0, 3, 4},
          Family{"phi3-partial", 112, 0, 3},
          Family{"phi3-partial", 0, 3, 4},
          Family{"phi3-window"},
          Family{"cohere2"},
          Family{"olmo2"},
          Family{"olmo3"},
          Family{"exaone4"},
          Family{"gemma2"},
          Family{"gemma3_text"},
          Family{"gemma4_text-moe"},
          Family{.name = "gemma4_text-e", .second_stage = 1},
          Family{"starcoder2"},
          Family{"smollm3"},
          Family{"apertus"},
          Family{"gemma"},
          Family{"cohere"},
          Family{"stablelm"},
          Family{"nemotron"},
          Family{"helium"},
          Family{"arcee"},
          Family{"mistral3"},
          Family{"gemma3"},
          Family{.name = "gemma4", .second_stage = 1},
          Family{"mixtral"},
          Family{"qwen2_moe"},
          Family{"olmoe"},
          Family{"granitemoe"},
          Family{"ernie4_5_moe"},
          Family{"hunyuan_v1_moe"},
          Family{"minimax_m2"},
          Family{"dots1"},
          Family{"lfm2"},
          Family{"lfm2_moe"},
          Family{"qwen3_5_text"},
          Family{"qwen3_5"},
          Family{"qwen3_5_moe"},
          Family{"qwen3_next"},
          Family{"granitemoehybrid"},
          Family{"nemotron_h"},
          Family{"nemotron_h-moe"},
          Family{"falcon_h1"},
          Family{"deepseek_v2"},
          Family{"deepseek_v3"},
          Family{"glm4_moe_lite"},
          Family{"glm_moe_dsa"},
          Family{"ministral"},
          Family{"internlm3"},
          Family{"mimo"},
          Family{"qwen2_vl"},
          Family{"qwen2_5_vl"},
          Family{"qwen3_vl"},
          Family{"qwen3_vl_moe"},
          Family{"glm4v"},
          Family{"glm4v_moe"},
          Family{"kimi_k2"},
          Family{"deepseek_v32"}};
}

}  // namespace sluice::testing
