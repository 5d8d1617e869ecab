#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "common/base/json.h"
#include "common/model_config/config_report.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "common/weights/model_file.h"
#include "common/weights/weight_sums.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/model_facts.h"
#include "services/cli/model_tables.h"

namespace sluice::cli {
namespace {

template <typename Value>
void Line(const char* key, const Value& value) {
  std::printf("%-24s %s\n", key, Cat(value).c_str());
}

void PrintConfig(const ModelConfig& config) {
  Line("model_type", config.model_type);
  Line("num_layers", config.num_layers());
  Line("hidden_size", config.hidden_size);
  const LayerConfig& first = config.layers[0];
  Line("intermediate_size", first.mlp.intermediate_size);
  Line("num_heads", first.attention.num_heads);
  Line("num_kv_heads", first.attention.num_kv_heads);
  Line("head_dim", first.attention.head_dim);
  Line("vocab_size", config.vocab_size);
  Line("max_position_embeddings", config.max_position_embeddings);
  Line("rope_theta", config.ropes[0].theta);
  Line("rms_norm_eps", config.rms_norm_eps);
  Line("tie_word_embeddings", config.tie_word_embeddings ? "yes" : "no");
  const auto windowed = std::count_if(
      config.layers.begin(), config.layers.end(),
      [](const LayerConfig& layer) { return layer.attention.window > 0; });
  if (windowed > 0) {
    Line("windowed layers", Cat(windowed, " of ", config.num_layers(), ", ",
                                KvWindows(config).back(), " tokens"));
  }
}

void PrintExperts(const ModelConfig& config, ExpertStorage storage) {
  const MoeConfig& moe = config.moe();
  Line("sparse layers", SparseLayers(config));
  Line("experts",
       Cat(moe.num_experts, ", ", moe.experts_per_token, " per token"));
  Line("experts' size", moe.intermediate_size);
  Line("shared expert's size", moe.shared_intermediate_size);
  Line("experts are stored", ToString(storage));
  if (config.num_nextn_predict_layers > 0) {
    Line("MTP layers left aside", config.num_nextn_predict_layers);
  }
}

// "a, b, c and 7 more".
std::string Names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += Cat(i > 0 ? ", " : "", names[i]);
  }
  if (names.size() > kMost) text += Cat(" and ", names.size() - kMost, " more");
  return text;
}

void PrintUnread(const ModelConfig& config, const weights::ModelFile& model) {
  const auto& parts = model.computed();
  if (parts.has_value() && !parts->unread_keys.empty()) {
    Line("keys not read", Names(parts->unread_keys));
  }
  const std::vector<std::string> tensors = UnreadTensors(config, model);
  if (!tensors.empty()) Line("tensors not read", Names(tensors));
}

double Millions(uint64_t count) { return double(count) * 1e-6; }

void PrintParameters(const ModelConfig& config) {
  std::printf("%-24s %.2f M (%.2f M in the last layer)\n", "parameters",
              Millions(ParameterCount(config)),
              Millions(LayerParameters(config, config.num_layers() - 1)));
  if (config.moe().num_experts == 0) return;
  std::printf("%-24s %.2f M\n", "active per token",
              Millions(ActiveParameterCount(config)));
}

void PrintModelBytes(const ModelConfig& config, const ModelBytes& bytes) {
  std::string table = BytesLine("embedding", bytes.embedding);
  table += LayerTable(bytes, config.moe().num_experts);
  if (config.moe().num_experts > 0) {
    table += BytesLine("all experts",
                       std::accumulate(bytes.experts.begin(),
                                       bytes.experts.end(), uint64_t{0}));
  }
  table += BytesLine("final norm and head", bytes.head);
  table += BytesLine("in all", bytes.total());
  if (bytes.left_aside > 0) {
    table += BytesLine("left aside", bytes.left_aside);
  }
  std::printf("%s", table.c_str());
}

void PrintTensors(const weights::ModelFile& model) {
  struct Sum {
    int count = 0;
    uint64_t elements = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const weights::TensorInfo& tensor : model.tensors()) {
    Sum& sum = sums[std::string(weights::ToString(tensor.dtype))];
    ++sum.count;
    sum.elements += static_cast<uint64_t>(tensor.elements());
    sum.bytes += static_cast<uint64_t>(tensor.stored_bytes());
  }
  std::printf("\n%-8s %8s %16s %14s\n", "dtype", "tensors", "elements",
              "stored");
  for (const auto& [dtype, sum] : sums) {
    std::printf("%-8s %8d %16llu %11.2f MB\n", dtype.c_str(), sum.count,
                static_cast<unsigned long long>(sum.elements),
                double(sum.bytes) * 1e-6);
  }
}

Status PrintStages(const ModelConfig& config, const weights::ModelFile& model,
                   int32_t num_stages) {
  const LayerLoadOptions options;
  SLUICE_ASSIGN_OR_RETURN(
      const std::string table,
      StageTable(LoadsOf(config, model, options), num_stages, {}));
  const auto chosen = KvTypeOf(std::nullopt, config, model, options.weights);
  std::printf(
      "\nas %d stages, in memory, keys and values in %s (--kv-type auto "
      "is %s)\n%s",
      num_stages, ToString(options.kv_type), ToString(KvChoice(chosen)),
      table.c_str());
  return OkStatus();
}

// Writes the checksums of all tensors beside the model.
Status WriteSums(const weights::ModelFile& model) {
  SLUICE_ASSIGN_OR_RETURN(const auto digest, weights::ComputeIdentity(model));
  const bool terminal = isatty(STDERR_FILENO) == 1;
  uint64_t bytes = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    bytes = total;
    if (terminal && done % (uint64_t{64} << 20) < weights::kSumPieceBytes) {
      std::fprintf(stderr, "\r%.0f of %.0f MB", double(done) * 1e-6,
                   double(total) * 1e-6);
    }
  };
  SLUICE_ASSIGN_OR_RETURN(const weights::WeightSums sums,
                          weights::ComputeWeightSums(model, digest, progress));
  SLUICE_RETURN_IF_ERROR(weights::WriteWeightSums(model, sums));
  std::printf("\nwrote %s: %zu tensors, %.2f MB\n", model.sums_path().c_str(),
              sums.tensors.size(), double(bytes) * 1e-6);
  return OkStatus();
}

struct InspectOptions {
  std::string model;
  std::optional<int64_t> stages;
  bool sums = false;
};

Status RunInspect(const InspectOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(options.model));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  const ModelBytes bytes = StoredBytes(config, *model);
  PrintConfig(config);
  if (config.moe().num_experts > 0) {
    PrintExperts(config, ExpertStorageOf(config, *model));
  }
  PrintParameters(config);
  std::printf("\n%s", ModelFacts(config).c_str());
  PrintUnread(config, *model);
  PrintTensors(*model);
  std::printf("\n");
  PrintModelBytes(config, bytes);
  const int64_t num_stages =
      options.stages.value_or(std::min<int64_t>(2, config.num_layers()));
  SLUICE_RETURN_IF_ERROR(PrintStages(config, *model,
                                     static_cast<int32_t>(std::clamp<int64_t>(
                                         num_stages, INT32_MIN, INT32_MAX))));
  return options.sums ? WriteSums(*model) : OkStatus();
}

}  // namespace

void AddInspect(CommandLine& sluice) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App& inspect = sluice.Add("inspect", "what a model folder or GGUF holds",
                                 [options] { return RunInspect(*options); });
  inspect.add_option("MODEL", options->model, "folder or GGUF")->required();
  inspect.add_option("--stages", options->stages,
                     "how its layers split over N stages");
  inspect.add_flag("--sums", options->sums,
                   "write checksums of its tensors beside it, which loads "
                   "then check");
}

}  // namespace sluice::cli
