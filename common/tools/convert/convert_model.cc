#include "common/tools/convert/convert_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/tools/convert/convert_output.h"
#include "common/tools/convert/folder_writer.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/quantize.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using weights::DType;
using weights::TensorInfo;

constexpr uint64_t kReadBytes = 16 << 20;  // of a tensor that is copied

// The matrices by name; whether they are of a layer.
std::map<std::string, bool> MatricesOf(const ModelConfig& config,
                                       const weights::ModelFile& model) {
  std::map<std::string, bool> names;
  const ExpertStorage storage = ExpertStorageOf(config, model);
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      if (weight.first().is_f32()) continue;
      const int32_t copies = weight.first().per_expert()
                                 ? config.layers[layer].moe.num_experts
                                 : 1;
      for (const TensorRow* row : weight.rows) {
        for (int32_t expert = 0; expert < copies; ++expert) {
          names[NameOf(*row, layer, expert)] = layer >= 0;
        }
      }
    }
  }
  return names;
}

// Checks that `out` can have the coding, and what is asked for beside it.
Status CheckCoding(const ConvertOptions& options, bool to_file) {
  if (to_file) {
    return InvalidArgument(options.out, ": cannot have ",
                           ToString(options.coding), ", which a folder has");
  }
  for (const ConvertRule& rule : options.rules) {
    if (rule.type == DType::kBF16) continue;
    return InvalidArgument(rule.pattern, ": a folder of ",
                           ToString(options.coding), " has BF16 beside it, ",
                           rule.type, " is asked for");
  }
  if (!options.importance.empty()) {
    return InvalidArgument("the importance of columns is for blocks, ",
                           ToString(options.coding), " rounds to the nearest");
  }
  const bool has_groups = options.coding != weights::Coding::kFp8;
  constexpr int64_t kGroups[] = {0, 32, 64, 128};
  if (options.group == 0 ||
      (has_groups && std::find(std::begin(kGroups), std::end(kGroups),
                               options.group) != std::end(kGroups))) {
    return OkStatus();
  }
  return InvalidArgument(
      "the group is of ", options.group, " columns, ",
      has_groups ? "known are 32, 64 and 128" : "FP8 has scales per 128 x 128");
}

// Checks that `out` can have the types.
Status CheckTypes(const ConvertOptions& options, bool to_gguf) {
  std::vector<DType> types;
  if (options.type.has_value()) types.push_back(*options.type);
  for (const ConvertRule& rule : options.rules) types.push_back(rule.type);
  for (const DType type : types) {
    const bool is_known = weights::CanQuantize(type);
    if (is_known && (to_gguf || type != DType::kF32)) continue;
    return InvalidArgument(
        options.out, ": cannot have ", type, ", ",
        to_gguf ? "a GGUF has F32, BF16" : "a folder has BF16", " or blocks");
  }
  return OkStatus();
}

// A folder of a folder.
class Converter {
 public:
  Converter(const ConvertOptions& options, const weights::ModelFile& model,
            const ConvertProgress& progress)
      : options_(options),
        model_(model),
        writer_(options, progress),
        quantizer_(options) {}

  StatusOr<ConvertReport> Run(const ModelConfig& config) {
    SLUICE_RETURN_IF_ERROR(Plan(config));
    SLUICE_RETURN_IF_ERROR(writer_.Write(
        [&](const FolderTensor& tensor, size_t) { return Fill(tensor); }));
    SLUICE_RETURN_IF_ERROR(writer_.WriteConfig(model_.config()));
    SLUICE_RETURN_IF_ERROR(CopyOthers());
    return writer_.Finish();
  }

 private:
  Status Plan(const ModelConfig& config) {
    SLUICE_ASSIGN_OR_RETURN(const ConvertTypes types,
                            ConvertTypes::Make(options_));
    const std::map<std::string, bool> matrices = MatricesOf(config, model_);
    std::set<std::string> parts;
    std::vector<std::string> sources;
    for (const weights::ComposedTensor& matrix : model_.composed()) {
      sources.push_back(matrix.info.name);
      for (std::string& part : matrix.parts()) parts.insert(std::move(part));
    }
    uint64_t bytes_before = 0;
    for (const TensorInfo& tensor : model_.tensors()) {
      bytes_before += static_cast<uint64_t>(tensor.stored_bytes());
      if (!parts.contains(tensor.name)) sources.push_back(tensor.name);
    }
    std::sort(sources.begin(), sources.end());
    std::vector<FolderTensor> tensors;
    for (const std::string& source : sources) {
      const TensorInfo& info = *model_.Find(source);
      const auto matrix = matrices.find(source);
      std::optional<DType> type;
      bool is_coded = false;
      if (matrix != matrices.end()) {
        type = types.Of(source, info.cols(), matrix->second);
        is_coded = types.IsCoded(source, matrix->second);
      }
      FolderTensor& tensor = tensors.emplace_back();
      tensor.info = info;
      tensor.is_matrix = type.has_value() || is_coded;
      tensor.info.dtype = is_coded ? DType::kF32 : TypeOf(info, type);
      if (is_coded) tensor.coding.coding = options_.coding;
    }
    return writer_.Start(std::move(tensors), bytes_before);
  }

  DType TypeOf(const TensorInfo& info, std::optional<DType> type) const {
    const bool is_composed = model_.FindStored(info.name) != &info;
    if (!type.has_value()) return is_composed ? DType::kBF16 : info.dtype;
    const bool is_linear =
        info.shape.size() == 2 && info.name.ends_with(".weight");
    if (is_linear) return *type;
    // Stacked experts of four bits have a layout of their own.
    return info.dtype == DType::kMxfp4 ? info.dtype : DType::kBF16;
  }

  StatusOr<double> Fill(const FolderTensor& tensor) {
    const TensorInfo& info = *model_.Find(tensor.info.name);
    const bool is_stored = &info == model_.FindStored(info.name);
    if (tensor.info.dtype == info.dtype && !tensor.is_coded()) {
      const bool is_blocks = weights::BlocksOf(info.dtype).has_value();
      return is_stored && !is_blocks ? Copy(info) : CopyRows(info);
    }
    Buffer wide(sizeof(float) * static_cast<size_t>(info.elements()));
    SLUICE_RETURN_IF_ERROR(
        model_.ReadF32(info.name, weights::Slice::All(info), wide.as<float>()));
    const MatrixName name = {info.name, info.cols()};
    SLUICE_ASSIGN_OR_RETURN(
        const auto made,
        tensor.is_coded()
            ? quantizer_.Encode(name, tensor.coding, wide.as<float>(),
                                info.elements())
            : quantizer_.Quantize(name, tensor.info.dtype, wide.as<float>(),
                                  info.elements()));
    SLUICE_RETURN_IF_ERROR(
        writer_.Append(made.bytes.data(), made.bytes.size()));
    return made.relative_error;
  }

  StatusOr<double> Copy(const TensorInfo& info) {
    const auto size = static_cast<uint64_t>(info.stored_bytes());
    Buffer bytes(static_cast<size_t>(std::min(size, kReadBytes)));
    for (uint64_t at = 0; at < size; at += kReadBytes) {
      const auto count = static_cast<size_t>(std::min(kReadBytes, size - at));
      SLUICE_RETURN_IF_ERROR(
          model_.ReadStoredBytes(info.name, at, count, bytes.as<uint8_t>()));
      SLUICE_RETURN_IF_ERROR(writer_.Append(bytes.data(), count));
    }
    return 0.0;
  }

  // Copies a matrix of blocks, some rows at a time.
  StatusOr<double> CopyRows(const TensorInfo& info) {
    const int64_t row = info.stored_bytes() / std::max<int64_t>(info.rows(), 1);
    const int64_t run = std::max<int64_t>(
        static_cast<int64_t>(kReadBytes) / std::max<int64_t>(row, 1), 1);
    Buffer bytes(static_cast<size_t>(std::min(run, info.rows()) * row));
    for (int64_t at = 0; at < info.rows(); at += run) {
      const int64_t end = std::min(at + run, info.rows());
      SLUICE_RETURN_IF_ERROR(model_.ReadStoredRows(
          info.name, weights::Slice::Rows(info, at, end), bytes.data()));
      SLUICE_RETURN_IF_ERROR(
          writer_.Append(bytes.data(), static_cast<size_t>((end - at) * row)));
    }
    return 0.0;
  }

  // The tokenizer, templates, licences: all small files beside the weights.
  Status CopyOthers() {
    constexpr std::string_view kLeft[] = {
        ".safetensors", ".index.json", ".sums", ".bin", ".pth", ".gguf", ".pt",
        // These describe the weights that were.
        "quantize_config.json", "quant_config.json", "hf_quant_config.json",
        "convert_report.json"};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(options_.model, error)) {
      const std::string name = entry.path().filename().string();
      const bool left = name == "config.json" || !entry.is_regular_file() ||
                        std::any_of(std::begin(kLeft), std::end(kLeft),
                                    [&](std::string_view suffix) {
                                      return name.ends_with(suffix);
                                    });
      if (left) continue;
      fs::copy_file(entry.path(), Cat(writer_.folder(), "/", name), error);
      if (error) {
        return Unavailable(entry.path().string(),
                           ": cannot be copied: ", error.message());
      }
    }
    return OkStatus();
  }

  const ConvertOptions& options_;
  const weights::ModelFile& model_;
  FolderWriter writer_;
  MatrixQuantizer quantizer_;
};

}  // namespace

StatusOr<ConvertReport> ConvertModel(const ConvertOptions& options,
                                     const ConvertProgress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(options.model));
  const bool to_gguf = options.out.ends_with(".gguf");
  const bool to_dllama = options.out.ends_with(".m");
  std::error_code ignored;
  const bool is_folder = fs::exists(options.model + "/config.json", ignored);
  const bool from_gguf = model->gguf() != nullptr;
  if (model->config().empty()) {
    return InvalidArgument(
        options.model,
        ": is no GGUF, no .m and no folder of safetensors with a config.json");
  }
  if (options.out.empty() || fs::exists(options.out, ignored)) {
    return InvalidArgument("OUT ", options.out, ": is there already");
  }
  if (options.coding != weights::Coding::kNone) {
    SLUICE_RETURN_IF_ERROR(CheckCoding(options, to_gguf || to_dllama));
  } else if (options.group != 0) {
    return InvalidArgument("a group of ", options.group,
                           " columns is of GPTQ and AWQ");
  }
  if (to_dllama) return ConvertToDllama(options, *model, progress);
  SLUICE_RETURN_IF_ERROR(CheckTypes(options, to_gguf));
  if (from_gguf && to_gguf) return ConvertGguf(options, *model, progress);
  if (to_gguf) return ConvertToGguf(options, *model, progress);
  if (!is_folder) return ConvertFromGguf(options, *model, progress);
  if (!options.type.has_value() && options.coding == weights::Coding::kNone) {
    return InvalidArgument(options.model,
                           ": is a folder with its weights as stored already");
  }
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  return Converter(options, *model, progress).Run(config);
}

}  // namespace sluice
