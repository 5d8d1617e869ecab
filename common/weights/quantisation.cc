#include "common/weights/quantisation.h"

#include <charconv>

#include "common/base/json.h"

namespace sluice::weights {
namespace {

std::string TextOf(const Json& json, const char* key, const char* absent) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : absent;
}

bool FlagOf(const Json& json, const char* key, bool absent) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() ? found->get<bool>()
                                                    : absent;
}

// Adds [rows, cols], or "ROWSxCOLS", at `key`, where it stands.
void AddBlockShape(const Json& json, const char* key, Quantisation& to) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  Json sizes = *found;
  if (found->is_string()) {
    const std::string text = found->get<std::string>();
    const size_t cross = text.find('x');
    int64_t rows = 0, cols = 0;
    const char* end = text.data() + text.size();
    if (cross == std::string::npos ||
        std::from_chars(text.data(), text.data() + cross, rows).ptr !=
            text.data() + cross ||
        std::from_chars(text.data() + cross + 1, end, cols).ptr != end ||
        rows < 1 || cols < 1) {
      return;
    }
    sizes = Json::array({rows, cols});
  }
  if (!sizes.is_array() || sizes.size() != 2) return;
  for (const Json& size : sizes) {
    if (!size.is_number_integer() || size < 1 || size > kMaxDimension) return;
  }
  to.blocks.emplace_back(sizes[0].get<int64_t>(), sizes[1].get<int64_t>());
}

// Takes what a part of the matrices has otherwise: GPTQModel's dynamic and
// auto-round's extra_config. Their bits show in the shapes of the tensors.
void TakeExceptions(const Json& json, const char* key, Quantisation& to) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return;
  for (const Json& part : *found) {
    if (!part.is_object()) continue;
    to.symmetric = to.symmetric && FlagOf(part, "sym", true);
    to.orders_columns = to.orders_columns || FlagOf(part, "desc_act", false);
  }
}

// auto-round's name of a layout: "auto_round:auto_gptq".
std::string Packing(const Json& json) {
  return TextOf(json, "packing_format", TextOf(json, "backend", "").c_str());
}

// auto-round packs as GPTQ or AWQ do.
std::string MethodOf(const Json& json) {
  const std::string method = TextOf(json, "quant_method", "");
  if (method != "auto-round" && method != "auto_round") return method;
  return Packing(json).find("awq") != std::string::npos ? "awq" : "gptq";
}

// How zero points are stored: GPTQ's are less by one. auto-round packs so for
// AutoGPTQ alone.
std::string GptqVersionOf(const Json& json) {
  std::string usual = "gptq";
  if (TextOf(json, "quant_method", "") != "gptq") {
    const std::string packing = Packing(json);
    const bool is_auto_gptq = packing.find("gptq") != std::string::npos &&
                              packing.find("gptqmodel") == std::string::npos;
    if (!is_auto_gptq) usual = "gptq_v2";
  }
  return TextOf(json, "checkpoint_format", usual.c_str());
}

}  // namespace

Quantisation QuantisationOf(const Json& config) {
  Quantisation said;
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return said;
  said.method = MethodOf(*found);
  const bool is_gptq = said.method == "gptq";
  said.version =
      is_gptq ? GptqVersionOf(*found) : TextOf(*found, "version", "gemm");
  const bool is_own = TextOf(*found, "quant_method", "") == said.method;
  said.symmetric = is_gptq || !is_own ? FlagOf(*found, "sym", true)
                                      : !FlagOf(*found, "zero_point", true);
  said.orders_columns = FlagOf(*found, "desc_act", false);
  for (const char* key : {"bits", "w_bit", "wbits"}) {
    const auto bits = found->find(key);
    if (bits == found->end() || !bits->is_number_integer()) continue;
    said.bits = bits->get<int64_t>();
    break;
  }
  TakeExceptions(*found, "dynamic", said);
  TakeExceptions(*found, "extra_config", said);
  AddBlockShape(*found, "weight_block_size", said);
  const auto groups = found->find("config_groups");
  if (groups != found->end() && groups->is_object()) {
    for (const Json& group : *groups) {
      const auto weights =
          group.is_object() ? group.find("weights") : group.end();
      if (group.is_object() && weights != group.end() && weights->is_object()) {
        AddBlockShape(*weights, "block_structure", said);
      }
    }
  }
  if (said.blocks.empty()) said.blocks.emplace_back(128, 128);
  return said;
}

}  // namespace sluice::weights
