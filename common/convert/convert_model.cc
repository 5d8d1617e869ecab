#include "common/convert/convert_model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/convert/convert_output.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/quantize.h"
#include "common/weights/safetensors_writer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using kernels::kShortBlock;
using weights::DType;
using weights::TensorInfo;

constexpr uint64_t kReadBytes = 16 << 20;  // of a tensor that is copied
constexpr char kWeightSuffix[] = ".weight";

// What becomes of one tensor of the source.
struct Output {
  std::string source;
  std::vector<TensorInfo> tensors;
  std::optional<DType> type;  // of a matrix; none: copied
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const TensorInfo& tensor : tensors) {
      sum += static_cast<uint64_t>(tensor.stored_bytes());
    }
    return sum;
  }
};

int BitsOf(DType type) { return type == DType::kQ8_0 ? 8 : 4; }

bool IsQuantised(DType type) { return type != DType::kBF16; }

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

// Checks that `out` can have the types.
Status CheckTypes(const ConvertOptions& options, bool to_gguf) {
  std::vector<DType> types = {options.type};
  for (const ConvertRule& rule : options.rules) types.push_back(rule.type);
  for (const DType type : types) {
    const bool in_folder =
        type == DType::kBF16 || type == DType::kQ4_0 || type == DType::kQ8_0;
    if (to_gguf ? weights::CanQuantize(type) : in_folder) continue;
    return InvalidArgument(
        options.out, ": cannot have ", type, ", ",
        to_gguf ? "a GGUF has F32, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1"
                : "a folder has BF16, Q4_0 or Q8_0");
  }
  return OkStatus();
}

class Converter {
 public:
  Converter(const ConvertOptions& options, const weights::ModelFile& model,
            const ConvertProgress& progress)
      : options_(options),
        model_(model),
        progress_(progress),
        folder_(options.out + ".partial") {}

  StatusOr<ConvertReport> Run(const ModelConfig& config) {
    SLUICE_RETURN_IF_ERROR(Plan(config));
    SLUICE_RETURN_IF_ERROR(CheckRoom(options_.out, report_.bytes_after));
    std::error_code error;
    fs::remove_all(folder_, error);
    if (!fs::create_directories(folder_, error)) {
      return Unavailable(folder_, ": cannot be made: ", error.message());
    }
    SLUICE_RETURN_IF_ERROR(WriteShards());
    SLUICE_RETURN_IF_ERROR(WriteConfig());
    SLUICE_RETURN_IF_ERROR(CopyOthers());
    SLUICE_RETURN_IF_ERROR(
        WriteReport(folder_ + "/convert_report.json", report_));
    SLUICE_RETURN_IF_ERROR(WriteSums(folder_));
    fs::rename(folder_, options_.out, error);
    if (!error) return std::move(report_);
    return Unavailable(options_.out, ": cannot be made: ", error.message());
  }

 private:
  // What is written, in which shards.
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
    for (const TensorInfo& tensor : model_.tensors()) {
      report_.bytes_before += static_cast<uint64_t>(tensor.stored_bytes());
      if (!parts.contains(tensor.name)) sources.push_back(tensor.name);
    }
    std::sort(sources.begin(), sources.end());
    for (const std::string& source : sources) {
      const TensorInfo& info = *model_.Find(source);
      const auto matrix = matrices.find(source);
      std::optional<DType> type;
      if (matrix != matrices.end()) {
        type = types.Of(source, info.cols(), matrix->second);
      }
      Output output = OutputOf(info, type);
      const uint64_t bytes = output.bytes();
      report_.bytes_after += bytes;
      if (shards_.empty() || shard_bytes_ + bytes > options_.shard_bytes) {
        shards_.emplace_back();
        shard_bytes_ = 0;
      }
      shard_bytes_ += bytes;
      shards_.back().push_back(std::move(output));
    }
    report_.num_files = static_cast<int>(shards_.size());
    return OkStatus();
  }

  Output OutputOf(const TensorInfo& info, std::optional<DType> type) const {
    const bool is_composed = model_.FindStored(info.name) != &info;
    if (!type.has_value() && !is_composed) return {info.name, {info}, type};
    const bool is_quantised = type.has_value() && IsQuantised(*type) &&
                              info.shape.size() == 2 &&
                              info.name.ends_with(kWeightSuffix);
    if (!is_quantised) {
      if (type.has_value()) type = DType::kBF16;
      return {info.name, {{info.name, DType::kBF16, info.shape}}, type};
    }
    const int64_t words = info.cols() / (weights::kWordBits / BitsOf(*type));
    return {info.name,
            {{info.name + "_packed", DType::kI32, {info.rows(), words}},
             {info.name + "_scale",
              DType::kF16,
              {info.rows(), info.cols() / kShortBlock}},
             {info.name + "_shape", DType::kI64, {2}}},
            type};
  }

  std::string ShardName(size_t shard) const {
    if (shards_.size() == 1) return "model.safetensors";
    char name[48];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors",
                  shard + 1, shards_.size());
    return name;
  }

  Status WriteShards() {
    Json index = {{"metadata", {{"total_size", report_.bytes_after}}},
                  {"weight_map", Json::object()}};
    for (size_t i = 0; i < shards_.size(); ++i) {
      const std::string name = ShardName(i);
      std::vector<TensorInfo> tensors;
      for (const Output& output : shards_[i]) {
        for (const TensorInfo& tensor : output.tensors) {
          tensors.push_back(tensor);
          index["weight_map"][tensor.name] = name;
        }
      }
      SLUICE_ASSIGN_OR_RETURN(
          const auto writer,
          weights::SafetensorsWriter::Create(Cat(folder_, "/", name), tensors));
      for (const Output& output : shards_[i]) {
        SLUICE_RETURN_IF_ERROR(Write(output, *writer));
      }
      SLUICE_RETURN_IF_ERROR(writer->Close());
    }
    if (shards_.size() == 1) return OkStatus();
    return WriteTextFile(folder_ + "/model.safetensors.index.json",
                         DumpJson(index) + "\n");
  }

  Status Write(const Output& output, weights::SafetensorsWriter& to) {
    const TensorInfo& info = *model_.Find(output.source);
    if (output.tensors[0].name == info.name &&
        output.tensors[0].dtype == info.dtype &&
        &info == model_.FindStored(output.source)) {
      if (output.type.has_value()) Report(output, 0);
      return Copy(info, to);
    }
    Buffer wide(sizeof(float) * static_cast<size_t>(info.elements()));
    SLUICE_RETURN_IF_ERROR(
        model_.ReadF32(info.name, weights::Slice::All(info), wide.as<float>()));
    const auto made = weights::Quantize(output.type.value_or(DType::kBF16),
                                        wide.as<float>(), info.elements());
    if (output.type.has_value()) Report(output, made.relative_error);
    if (output.tensors.size() == 1) {
      return Append(made.bytes.data(), made.bytes.size(), to);
    }
    return WriteBlocks(info, *output.type, made.bytes.as<uint8_t>(), to);
  }

  void Report(const Output& output, double error) {
    report_.matrices.push_back(
        {output.source, *output.type, output.bytes(), error});
  }

  Status Copy(const TensorInfo& info, weights::SafetensorsWriter& to) {
    const auto size = static_cast<uint64_t>(info.stored_bytes());
    Buffer bytes(static_cast<size_t>(std::min(size, kReadBytes)));
    for (uint64_t at = 0; at < size; at += kReadBytes) {
      const auto count = static_cast<size_t>(std::min(kReadBytes, size - at));
      SLUICE_RETURN_IF_ERROR(
          model_.ReadStoredBytes(info.name, at, count, bytes.as<uint8_t>()));
      SLUICE_RETURN_IF_ERROR(Append(bytes.data(), count, to));
    }
    return OkStatus();
  }

  // A block's codes become words of its row, first code lowest, with the
  // middle added: what a stored Q4_0 has, and Q8_0 with 128 added.
  Status WriteBlocks(const TensorInfo& info, DType type, const uint8_t* stored,
                     weights::SafetensorsWriter& to) {
    const int64_t blocks = info.elements() / kShortBlock;
    const auto block_bytes =
        static_cast<size_t>(weights::BlockSizeOf(type).bytes);
    const size_t code_bytes = block_bytes - sizeof(uint16_t);
    Buffer codes(static_cast<size_t>(blocks) * code_bytes);
    Buffer scales(static_cast<size_t>(blocks) * sizeof(uint16_t));
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block = stored + b * block_bytes;
      uint8_t* const out = codes.as<uint8_t>() + b * code_bytes;
      std::memcpy(scales.as<uint16_t>() + b, block, sizeof(uint16_t));
      block += sizeof(uint16_t);
      for (size_t i = 0; i < code_bytes; ++i) {
        if (type == DType::kQ8_0) {
          out[i] = block[i] ^ 0x80;
          continue;
        }
        // Elements 2i and 2i + 1: of low halves, then of high ones.
        const size_t first = 2 * i % 16;
        const int shift = i < 8 ? 0 : 4;
        out[i] = static_cast<uint8_t>((block[first] >> shift & 15) |
                                      (block[first + 1] >> shift & 15) << 4);
      }
    }
    const int64_t shape[] = {info.rows(), info.cols()};
    SLUICE_RETURN_IF_ERROR(Append(codes.data(), codes.size(), to));
    SLUICE_RETURN_IF_ERROR(Append(scales.data(), scales.size(), to));
    return Append(shape, sizeof(shape), to);
  }

  Status Append(const void* bytes, size_t size,
                weights::SafetensorsWriter& to) {
    SLUICE_RETURN_IF_ERROR(to.Append(bytes, size));
    done_ += size;
    if (progress_) progress_(done_, report_.bytes_after);
    return OkStatus();
  }

  Status WriteConfig() {
    Json config = model_.config();
    config.erase("quantization_config");
    const Json quantisation = Quantisation();
    if (!quantisation.is_null()) {
      config["quantization_config"] = quantisation;
    }
    return WriteTextFile(folder_ + "/config.json", DumpJson(config) + "\n");
  }

  // What compressed-tensors says of the matrices: a group per number of bits.
  // The one that is not the options' names its modules.
  Json Quantisation() const {
    std::map<DType, Json> modules;
    for (const ConvertedMatrix& matrix : report_.matrices) {
      if (!matrix.name.ends_with(kWeightSuffix)) continue;
      modules[matrix.type].push_back(matrix.name.substr(
          0, matrix.name.size() - std::strlen(kWeightSuffix)));
    }
    Json ignored = modules[DType::kBF16];
    if (ignored.is_null()) ignored = Json::array();
    modules.erase(DType::kBF16);
    if (modules.empty()) return Json();
    const auto is_head = [](const ConvertedMatrix& matrix) {
      return matrix.name == "lm_head.weight";
    };
    if (std::none_of(report_.matrices.begin(), report_.matrices.end(),
                     is_head)) {
      ignored.push_back("lm_head");
    }
    Json groups = Json::object();
    for (const auto& [type, names] : modules) {
      const bool is_common = modules.size() == 1 || type == options_.type;
      groups[Cat("group_", groups.size())] = {
          {"targets", is_common ? Json::array({"Linear"}) : names},
          {"weights",
           {{"num_bits", BitsOf(type)},
            {"type", "int"},
            {"symmetric", true},
            {"strategy", "group"},
            {"group_size", kShortBlock}}}};
    }
    return {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"quantization_status", "compressed"},
            {"ignore", std::move(ignored)},
            {"config_groups", std::move(groups)}};
  }

  // The tokenizer, templates, licences: all small files beside the weights.
  Status CopyOthers() {
    constexpr std::string_view kLeft[] = {
        ".safetensors", ".index.json", ".sums", ".bin", ".pth", ".gguf", ".pt"};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(options_.model, error)) {
      const std::string name = entry.path().filename().string();
      const bool left = name == "config.json" || !entry.is_regular_file() ||
                        std::any_of(std::begin(kLeft), std::end(kLeft),
                                    [&](std::string_view suffix) {
                                      return name.ends_with(suffix);
                                    });
      if (left) continue;
      fs::copy_file(entry.path(), Cat(folder_, "/", name), error);
      if (error) {
        return Unavailable(entry.path().string(),
                           ": cannot be copied: ", error.message());
      }
    }
    return OkStatus();
  }

  const ConvertOptions& options_;
  const weights::ModelFile& model_;
  const ConvertProgress& progress_;
  const std::string folder_;
  std::vector<std::vector<Output>> shards_;
  uint64_t shard_bytes_ = 0;  // of the last one
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace

StatusOr<ConvertReport> ConvertModel(const ConvertOptions& options,
                                     const ConvertProgress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(options.model));
  const bool to_gguf = options.out.ends_with(".gguf");
  const bool from_gguf = model->gguf() != nullptr;
  if (!from_gguf && !fs::is_directory(options.model)) {
    return InvalidArgument(
        options.model,
        ": is no GGUF and no folder of safetensors with a config.json");
  }
  if (from_gguf && !to_gguf) {
    return InvalidArgument(options.model, ": a GGUF becomes a GGUF; OUT ",
                           options.out);
  }
  std::error_code ignored;
  if (options.out.empty() || fs::exists(options.out, ignored)) {
    return InvalidArgument("OUT ", options.out, ": is there already");
  }
  SLUICE_RETURN_IF_ERROR(CheckTypes(options, to_gguf));
  if (from_gguf) return ConvertGguf(options, *model, progress);
  if (to_gguf) return ConvertToGguf(options, *model, progress);
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  return Converter(options, *model, progress).Run(config);
}

}  // namespace sluice
