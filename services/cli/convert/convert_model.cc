#include "services/cli/convert/convert_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/safetensors_writer.h"
#include "common/weights/weight_sums.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using kernels::BlockFormat;
using kernels::kShortBlock;
using weights::DType;
using weights::TensorInfo;

constexpr uint64_t kReadBytes = 16 << 20;  // of a tensor that is copied
constexpr char kWeightSuffix[] = ".weight";

// What becomes of one tensor of the source.
struct Output {
  std::string source;
  std::vector<TensorInfo> tensors;
  bool is_matrix = false;  // of a layer
  bool is_quantised = false;
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const TensorInfo& tensor : tensors) {
      sum += static_cast<uint64_t>(tensor.stored_bytes());
    }
    return sum;
  }
};

int BitsOf(BlockFormat format) { return format == BlockFormat::kQ8_0 ? 8 : 4; }

// The matrices of the layers by name.
std::set<std::string> MatricesOf(const ModelConfig& config,
                                 const weights::ModelFile& model) {
  std::set<std::string> names;
  const ExpertStorage storage = ExpertStorageOf(config, model);
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      if (weight.first().is_f32()) continue;
      const int32_t copies = weight.first().per_expert()
                                 ? config.layers[layer].moe.num_experts
                                 : 1;
      for (const TensorRow* row : weight.rows) {
        for (int32_t expert = 0; expert < copies; ++expert) {
          names.insert(NameOf(*row, layer, expert));
        }
      }
    }
  }
  return names;
}

class Converter {
 public:
  Converter(const ConvertOptions& options, const weights::ModelFile& model,
            const std::function<void(uint64_t, uint64_t)>& progress)
      : options_(options),
        model_(model),
        progress_(progress),
        folder_(options.out + ".partial") {}

  StatusOr<ConvertReport> Run(const ModelConfig& config) {
    SLUICE_RETURN_IF_ERROR(Plan(config));
    SLUICE_RETURN_IF_ERROR(CheckRoom());
    std::error_code error;
    fs::remove_all(folder_, error);
    if (!fs::create_directories(folder_, error)) {
      return Unavailable(folder_, ": cannot be made: ", error.message());
    }
    SLUICE_RETURN_IF_ERROR(WriteShards());
    SLUICE_RETURN_IF_ERROR(WriteConfig());
    SLUICE_RETURN_IF_ERROR(CopyOthers());
    SLUICE_RETURN_IF_ERROR(WriteReport());
    SLUICE_RETURN_IF_ERROR(WriteSums());
    fs::rename(folder_, options_.out, error);
    if (!error) return std::move(report_);
    return Unavailable(options_.out, ": cannot be made: ", error.message());
  }

 private:
  // What is written, in which shards.
  Status Plan(const ModelConfig& config) {
    std::regex keep;
    try {
      keep = std::regex(options_.keep);
    } catch (const std::regex_error& error) {
      return InvalidArgument("--keep ", options_.keep,
                             " is no regular expression: ", error.what());
    }
    const std::set<std::string> matrices = MatricesOf(config, model_);
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
      Output output =
          OutputOf(*model_.Find(source), matrices.contains(source),
                   !options_.keep.empty() && std::regex_search(source, keep));
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

  Output OutputOf(const TensorInfo& info, bool is_matrix, bool kept) const {
    Output output = {info.name, {info}, is_matrix, false};
    const bool is_composed = model_.FindStored(info.name) != &info;
    if (!is_matrix && !is_composed) return output;
    output.is_quantised = is_matrix && options_.format.has_value() && !kept &&
                          info.shape.size() == 2 &&
                          info.cols() % kShortBlock == 0 &&
                          info.name.ends_with(kWeightSuffix);
    if (!output.is_quantised) {
      output.tensors = {{info.name, DType::kBF16, info.shape}};
      return output;
    }
    const int64_t words =
        info.cols() / (weights::kWordBits / BitsOf(*options_.format));
    output.tensors = {
        {info.name + "_packed", DType::kI32, {info.rows(), words}},
        {info.name + "_scale",
         DType::kF16,
         {info.rows(), info.cols() / kShortBlock}},
        {info.name + "_shape", DType::kI64, {2}}};
    return output;
  }

  Status CheckRoom() const {
    std::error_code error;
    const fs::path parent = fs::absolute(options_.out).parent_path();
    const fs::space_info space = fs::space(parent, error);
    if (error) {
      return NotFound(parent.string(), ": cannot be read: ", error.message());
    }
    if (space.available >= report_.bytes_after) return OkStatus();
    return ResourceExhausted(parent.string(), ": has ", space.available,
                             " bytes free, ", options_.out, " needs ",
                             report_.bytes_after);
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
    return WriteText("model.safetensors.index.json", DumpJson(index));
  }

  Status Write(const Output& output, weights::SafetensorsWriter& to) {
    const TensorInfo& info = *model_.Find(output.source);
    if (!output.is_matrix && &info == model_.FindStored(output.source)) {
      return Copy(info, to);
    }
    const auto count = static_cast<size_t>(info.elements());
    Buffer wide(sizeof(float) * count);
    SLUICE_RETURN_IF_ERROR(
        model_.ReadF32(info.name, weights::Slice::All(info), wide.as<float>()));
    double error = 0;
    SLUICE_RETURN_IF_ERROR(output.is_quantised
                               ? WriteBlocks(info, wide.as<float>(), error, to)
                               : WriteBf16(wide.as<float>(), count, error, to));
    if (output.is_matrix) {
      report_.matrices.push_back(
          {info.name, output.is_quantised, output.bytes(), error});
    }
    return OkStatus();
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

  Status WriteBf16(const float* wide, size_t count, double& error,
                   weights::SafetensorsWriter& to) {
    Buffer halves(sizeof(uint16_t) * count);
    std::vector<float> back(count);
    for (size_t i = 0; i < count; ++i) {
      halves.as<uint16_t>()[i] = weights::F32ToBf16(wide[i]);
      back[i] = weights::Bf16ToF32(halves.as<uint16_t>()[i]);
    }
    error = RelativeError(wide, back.data(), count);
    return Append(halves.data(), halves.size(), to);
  }

  // A block's codes become words of its row, first code lowest, with the
  // middle added: what a stored Q4_0 has, and Q8_0 with 128 added.
  Status WriteBlocks(const TensorInfo& info, const float* wide, double& error,
                     weights::SafetensorsWriter& to) {
    const BlockFormat format = *options_.format;
    const int64_t blocks = info.elements() / kShortBlock;
    const auto block_bytes =
        static_cast<size_t>(kernels::LayoutOf(format).bytes);
    const size_t code_bytes = block_bytes - sizeof(uint16_t);
    Buffer stored(static_cast<size_t>(blocks) * block_bytes);
    kernels::StoreBlocks(format, wide, blocks, stored.as<uint8_t>());
    Buffer codes(static_cast<size_t>(blocks) * code_bytes);
    Buffer scales(static_cast<size_t>(blocks) * sizeof(uint16_t));
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block = stored.as<uint8_t>() + b * block_bytes;
      uint8_t* const out = codes.as<uint8_t>() + b * code_bytes;
      std::memcpy(scales.as<uint16_t>() + b, block, sizeof(uint16_t));
      block += sizeof(uint16_t);
      for (size_t i = 0; i < code_bytes; ++i) {
        if (format == BlockFormat::kQ8_0) {
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
    std::vector<float> back(static_cast<size_t>(info.elements()));
    kernels::WidenBlocks(format, stored.as<uint8_t>(), blocks, back.data());
    error = RelativeError(wide, back.data(), back.size());
    const int64_t shape[] = {info.rows(), info.cols()};
    SLUICE_RETURN_IF_ERROR(Append(codes.data(), codes.size(), to));
    SLUICE_RETURN_IF_ERROR(Append(scales.data(), scales.size(), to));
    return Append(shape, sizeof(shape), to);
  }

  static double RelativeError(const float* from, const float* to,
                              size_t count) {
    double difference = 0;
    double length = 0;
    for (size_t i = 0; i < count; ++i) {
      const double a = from[i];
      difference += (a - to[i]) * (a - to[i]);
      length += a * a;
    }
    return length > 0 ? std::sqrt(difference / length) : 0;
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
    if (options_.format.has_value()) {
      Json ignored = Json::array({"lm_head"});
      for (const ConvertedMatrix& matrix : report_.matrices) {
        if (!matrix.is_quantised && matrix.name.ends_with(kWeightSuffix)) {
          ignored.push_back(matrix.name.substr(
              0, matrix.name.size() - std::strlen(kWeightSuffix)));
        }
      }
      config["quantization_config"] = {
          {"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", std::move(ignored)},
          {"config_groups",
           {{"group_0",
             {{"targets", Json::array({"Linear"})},
              {"weights",
               {{"num_bits", BitsOf(*options_.format)},
                {"type", "int"},
                {"symmetric", true},
                {"strategy", "group"},
                {"group_size", kShortBlock}}}}}}}};
    }
    return WriteText("config.json", DumpJson(config));
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

  Status WriteReport() const {
    Json all = Json::array();
    for (const ConvertedMatrix& matrix : report_.matrices) {
      all.push_back({{"name", matrix.name},
                     {"type", matrix.is_quantised
                                  ? kernels::LayoutOf(*options_.format).name
                                  : "BF16"},
                     {"bytes", matrix.bytes},
                     {"relative_error", matrix.relative_error}});
    }
    return WriteText("convert_report.json", DumpJson(all));
  }

  Status WriteSums() const {
    SLUICE_ASSIGN_OR_RETURN(const auto written, OpenModel(folder_));
    SLUICE_ASSIGN_OR_RETURN(const auto digest,
                            weights::ComputeIdentity(*written));
    SLUICE_ASSIGN_OR_RETURN(const auto sums,
                            weights::ComputeWeightSums(*written, digest, {}));
    return weights::WriteWeightSums(*written, sums);
  }

  Status WriteText(const std::string& name, const std::string& text) const {
    const std::string path = Cat(folder_, "/", name);
    std::ofstream out(path, std::ios::binary);
    out << text << "\n";
    out.close();
    if (out.good()) return OkStatus();
    return Unavailable(path, ": cannot be written");
  }

  const ConvertOptions& options_;
  const weights::ModelFile& model_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  const std::string folder_;
  std::vector<std::vector<Output>> shards_;
  uint64_t shard_bytes_ = 0;  // of the last one
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace

StatusOr<ConvertReport> ConvertModel(
    const ConvertOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(options.model));
  if (model->gguf() != nullptr || !fs::is_directory(options.model)) {
    return InvalidArgument(options.model,
                           ": is no folder of safetensors with a config.json");
  }
  std::error_code ignored;
  if (options.out.empty() || fs::exists(options.out, ignored)) {
    return InvalidArgument("OUT ", options.out, ": is there already");
  }
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  return Converter(options, *model, progress).Run(config);
}

}  // namespace sluice::cli
