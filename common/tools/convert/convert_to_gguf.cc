#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/text/gguf_tokenizer.h"
#include "common/tools/convert/convert_output.h"
#include "common/tools/convert/row_source.h"
#include "common/weights/gguf_file.h"
#include "common/weights/gguf_writer.h"
#include "common/weights/model_name.h"
#include "common/weights/quantize.h"

namespace sluice {
namespace {

using weights::DType;
using weights::GgufMetadata;
using weights::GgufType;
using weights::ModelFile;
using weights::TensorInfo;

// A tensor of the GGUF.
struct FolderOutput {
  const TensorRow* row = nullptr;  // null: divisors of RoPE's frequencies
  int32_t layer = -1;
  std::string matrix;  // the model's name; empty: no matrix of the options
  TensorInfo tensor;
  std::vector<float> divisors;
};

class FolderToGguf {
 public:
  FolderToGguf(const ConvertOptions& options, const ModelFile& model,
               const ModelConfig& config, const ConvertProgress& progress)
      : options_(options),
        model_(model),
        config_(config),
        progress_(progress),
        finder_(config, model),
        rows_(model),
        quantizer_(options) {}

  StatusOr<ConvertReport> Run() {
    SLUICE_RETURN_IF_ERROR(Plan());
    std::vector<TensorInfo> tensors;
    for (const FolderOutput& output : outputs_)
      tensors.push_back(output.tensor);
    SLUICE_ASSIGN_OR_RETURN(const GgufMetadata metadata, MetadataOf(tensors));
    SLUICE_RETURN_IF_ERROR(CheckRoom(options_.out, report_.bytes_after));
    const std::string partial = options_.out + ".partial";
    SLUICE_ASSIGN_OR_RETURN(const auto writer, weights::GgufWriter::Create(
                                                   partial, metadata, tensors));
    for (const FolderOutput& output : outputs_) {
      SLUICE_RETURN_IF_ERROR(Write(output, *writer));
    }
    SLUICE_RETURN_IF_ERROR(writer->Close());
    SLUICE_RETURN_IF_ERROR(FinishFile(partial, options_.out, report_));
    return std::move(report_);
  }

 private:
  Status Plan() {
    SLUICE_ASSIGN_OR_RETURN(const ConvertTypes types,
                            ConvertTypes::Make(options_));
    for (const TensorInfo& info : model_.tensors()) {
      report_.bytes_before += static_cast<uint64_t>(info.stored_bytes());
    }
    for (int32_t layer = -1; layer < config_.num_layers(); ++layer) {
      for (const WeightRows& weight :
           WeightsOf(config_, layer, ExpertStorage::kApart)) {
        for (const TensorRow* row : weight.rows) Add(*row, layer, types);
      }
    }
    for (GgufRopeTensor& tensor : RopeTensorsOf(config_.ropes.front())) {
      const auto size = static_cast<int64_t>(tensor.elements.size());
      outputs_.push_back({nullptr,
                          -1,
                          "",
                          {std::string(tensor.name), DType::kF32, {size}},
                          std::move(tensor.elements)});
    }
    for (const FolderOutput& output : outputs_) {
      report_.bytes_after +=
          static_cast<uint64_t>(output.tensor.stored_bytes());
    }
    report_.num_files = 1;
    return OkStatus();
  }

  void Add(const TensorRow& row, int32_t layer, const ConvertTypes& types) {
    FolderOutput output{&row, layer, "", {}, {}};
    output.tensor.name = GgufNameOf(row.gguf, layer);
    std::vector<int64_t>& shape = output.tensor.shape;
    for (const Dimension& size : DimensionsOf(row, config_, layer)) {
      shape.push_back(size.size);
    }
    // A GGUF has no first dimension of 1.
    if (shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());
    if (!row.is_f32()) {
      const std::string name = NameOf(row, layer);
      const DType stored = model_.Find(finder_.Find(row, layer, 0).name)->dtype;
      const auto type = types.Of(name, output.tensor.cols(), layer >= 0);
      // Four bits again would lose more than they save.
      const bool is_kept =
          stored == DType::kMxfp4 && !types.RuleOf(name).has_value();
      if (type.has_value()) output.matrix = name;
      output.tensor.dtype = is_kept || !type.has_value() ? stored : *type;
    }
    outputs_.push_back(std::move(output));
  }

  StatusOr<GgufMetadata> MetadataOf(
      const std::vector<TensorInfo>& tensors) const {
    SLUICE_ASSIGN_OR_RETURN(GgufMetadata to, GgufKeysOf(config_, tensors));
    GgufTokenizerOptions text;
    text.vocab_size = config_.vocab_size;
    if (config_.bos_token_id >= 0) text.bos = config_.bos_token_id;
    text.eos_ids = config_.eos_token_ids;
    const std::vector<TokenId> more =
        EosTokenIds(model_.generation_config(), config_.vocab_size);
    text.eos_ids.insert(text.eos_ids.end(), more.begin(), more.end());
    text.pre = options_.pre_tokenizer;
    SLUICE_ASSIGN_OR_RETURN(const GgufMetadata tokenizer,
                            GgufTokenizerOf(options_.model, text));
    for (const auto& [key, value] : tokenizer.entries()) {
      to.Insert(key, value);
    }
    to.Insert("general.name", {GgufType::kString, GgufType::kUint8,
                               weights::ModelName(model_)});
    to.Insert("general.file_type", {GgufType::kUint32, GgufType::kUint8,
                                    GgufFileTypeOf(MostCommonType())});
    to.Insert("general.quantization_version",
              {GgufType::kUint32, GgufType::kUint8, int64_t{2}});
    return to;
  }

  // Returns the options' type, else that of the most bytes.
  DType MostCommonType() const {
    if (options_.type.has_value()) return *options_.type;
    std::map<DType, int64_t> bytes;
    for (const FolderOutput& output : outputs_) {
      bytes[output.tensor.dtype] += output.tensor.stored_bytes();
    }
    return std::max_element(
               bytes.begin(), bytes.end(),
               [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  Status Write(const FolderOutput& output, weights::GgufWriter& to) {
    if (output.row == nullptr) {
      const std::vector<float>& all = output.divisors;
      return Append(all.data(), all.size() * sizeof(float), to);
    }
    const bool adds_one =
        config_.norms_add_one && IsNormWeight(output.row->place);
    const bool is_stacked = output.row->cut == RankCut::kExperts;
    const int64_t count = is_stacked ? output.tensor.shape[0] : 1;
    ErrorSum error;
    for (int64_t i = 0; i < count; ++i) {
      const RowSource source = finder_.Find(*output.row, output.layer, i);
      const DType type = output.tensor.dtype;
      if (rows_.IsStoredAs(source, type) && !adds_one) {
        SLUICE_ASSIGN_OR_RETURN(const Buffer rows, rows_.ReadStored(source));
        SLUICE_RETURN_IF_ERROR(Append(rows.data(), rows.size(), to));
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(Buffer wide, rows_.ReadWide(source));
      const auto elements = static_cast<int64_t>(wide.size() / sizeof(float));
      if (adds_one) {
        float* const weights = wide.as<float>();
        for (int64_t at = 0; at < elements; ++at) weights[at] += 1.0f;
      }
      SLUICE_ASSIGN_OR_RETURN(
          const auto made,
          quantizer_.Quantize(
              {source.name, output.tensor.cols(), is_stacked ? i : -1}, type,
              wide.as<float>(), elements));
      error.Add(wide.as<float>(), elements, made.relative_error);
      SLUICE_RETURN_IF_ERROR(Append(made.bytes.data(), made.bytes.size(), to));
    }
    if (output.matrix.empty()) return OkStatus();
    report_.matrices.push_back(
        {output.matrix, output.tensor.dtype,
         static_cast<uint64_t>(output.tensor.stored_bytes()),
         error.relative()});
    return OkStatus();
  }

  Status Append(const void* bytes, size_t size, weights::GgufWriter& to) {
    SLUICE_RETURN_IF_ERROR(to.Append(bytes, size));
    done_ += size;
    if (progress_) progress_(done_, report_.bytes_after);
    return OkStatus();
  }

  const ConvertOptions& options_;
  const ModelFile& model_;
  const ModelConfig& config_;
  const ConvertProgress& progress_;
  const RowFinder finder_;
  const RowReader rows_;
  MatrixQuantizer quantizer_;
  std::vector<FolderOutput> outputs_;
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace

StatusOr<ConvertReport> ConvertToGguf(const ConvertOptions& options,
                                      const ModelFile& model,
                                      const ConvertProgress& progress) {
  SLUICE_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(model.config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, model));
  if (GgufFamilyOf(config.model_type) == nullptr) {
    return Unimplemented("model_type '", config.model_type,
                         "' has no GGUF; known architectures are ",
                         GgufArchitectures());
  }
  // Layers behind the last answer no token.
  config.num_nextn_predict_layers = 0;
  return FolderToGguf(options, model, config, progress).Run();
}

}  // namespace sluice
