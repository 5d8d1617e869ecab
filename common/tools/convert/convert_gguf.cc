#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/tools/convert/convert_output.h"
#include "common/weights/gguf_file.h"
#include "common/weights/gguf_writer.h"
#include "common/weights/quantize.h"

namespace sluice {

using weights::DType;
using weights::GgufMetadata;
using weights::TensorInfo;

int64_t GgufFileTypeOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    // Those that llama.cpp calls medium.
    case DType::kQ2K:
      return 10;
    case DType::kQ3K:
      return 12;
    case DType::kQ4K:
      return 15;
    case DType::kQ5K:
      return 17;
    case DType::kQ6K:
      return 18;
    case DType::kIq4Nl:
      return 25;
    case DType::kIq4Xs:
      return 30;
    case DType::kBF16:
      return 32;
    case DType::kMxfp4:
      return 38;
    default:
      return 0;
  }
}

namespace {

constexpr uint64_t kCopyBytes = 16 << 20;

// The source's metadata, without its split and with the new type.
GgufMetadata MetadataOf(const GgufMetadata& from, std::optional<DType> type) {
  using weights::GgufType;
  GgufMetadata to;
  if (type.has_value()) {
    to.Insert("general.file_type",
              {GgufType::kUint32, GgufType::kUint8, GgufFileTypeOf(*type)});
  }
  to.Insert("general.quantization_version",
            {GgufType::kUint32, GgufType::kUint8, int64_t{2}});
  for (const auto& [key, value] : from.entries()) {
    if (!key.starts_with("split.")) to.Insert(key, value);
  }
  return to;
}

// A tensor of the source and what it becomes.
struct GgufOutput {
  TensorInfo source;   // by the file's name, in the file's order of rows
  std::string matrix;  // the model's name; empty: no matrix, copied
  TensorInfo tensor;
};

class GgufConverter {
 public:
  GgufConverter(const ConvertOptions& options, const weights::ModelFile& raw,
                const ConvertProgress& progress)
      : options_(options),
        raw_(raw),
        progress_(progress),
        quantizer_(options) {}

  StatusOr<ConvertReport> Run(const ModelConfig& config) {
    SLUICE_ASSIGN_OR_RETURN(const ConvertTypes types,
                            ConvertTypes::Make(options_));
    Plan(config, types);
    SLUICE_RETURN_IF_ERROR(CheckRoom(options_.out, report_.bytes_after));
    const std::string partial = options_.out + ".partial";
    SLUICE_RETURN_IF_ERROR(Write(partial));
    SLUICE_RETURN_IF_ERROR(FinishFile(partial, options_.out, report_));
    return std::move(report_);
  }

 private:
  void Plan(const ModelConfig& config, const ConvertTypes& types) {
    for (const TensorInfo& info : raw_.tensors()) {
      GgufOutput output{info, "", info};
      GgufTensorPlace place = PlaceOfGguf(*config.tensors, info.name);
      const size_t fused = info.name.find(".attn_qkv.");
      if (place.row == nullptr && fused != std::string::npos) {
        // Of one type, as q is.
        std::string name = info.name;
        name.replace(fused, 10, ".attn_q.");
        place = PlaceOfGguf(*config.tensors, name);
      }
      if (place.row != nullptr && !place.row->is_f32()) {
        const std::string name = NameOf(*place.row, place.layer);
        const auto type = types.Of(name, info.cols(), place.layer >= 0);
        if (type.has_value()) {
          output.matrix = name;
          output.tensor.dtype = *type;
        }
      }
      report_.bytes_before += static_cast<uint64_t>(info.stored_bytes());
      report_.bytes_after +=
          static_cast<uint64_t>(output.tensor.stored_bytes());
      outputs_.push_back(std::move(output));
    }
    report_.num_files = 1;
  }

  Status Write(const std::string& path) {
    std::vector<TensorInfo> tensors;
    for (const GgufOutput& output : outputs_) tensors.push_back(output.tensor);
    SLUICE_ASSIGN_OR_RETURN(
        const auto writer,
        weights::GgufWriter::Create(
            path, MetadataOf(*raw_.gguf(), options_.type), tensors));
    for (const GgufOutput& output : outputs_) {
      double error = 0;
      const bool is_same = output.tensor.dtype == output.source.dtype;
      SLUICE_RETURN_IF_ERROR(is_same ? Copy(output.source, *writer)
                                     : Convert(output, error, *writer));
      if (output.matrix.empty()) continue;
      report_.matrices.push_back(
          {output.matrix, output.tensor.dtype,
           static_cast<uint64_t>(output.tensor.stored_bytes()), error});
    }
    return writer->Close();
  }

  // One expert's matrix at a time.
  Status Convert(const GgufOutput& output, double& error,
                 weights::GgufWriter& to) {
    const TensorInfo& info = output.source;
    const int64_t experts = info.shape.size() == 3 ? info.shape[0] : 1;
    const int64_t rows = info.rows() / experts;
    ErrorSum sum;
    for (int64_t i = 0; i < experts; ++i) {
      const auto slice = weights::Slice::Rows(info, i * rows, (i + 1) * rows);
      const int64_t count = slice.elements();
      Buffer wide(sizeof(float) * static_cast<size_t>(count));
      SLUICE_RETURN_IF_ERROR(raw_.ReadF32(info.name, slice, wide.as<float>()));
      SLUICE_ASSIGN_OR_RETURN(
          const auto made,
          quantizer_.Quantize(
              {output.matrix, info.cols(), experts > 1 ? i : -1},
              output.tensor.dtype, wide.as<float>(), count));
      sum.Add(wide.as<float>(), count, made.relative_error);
      SLUICE_RETURN_IF_ERROR(Append(made.bytes.data(), made.bytes.size(), to));
    }
    error = sum.relative();
    return OkStatus();
  }

  Status Copy(const TensorInfo& info, weights::GgufWriter& to) {
    const auto size = static_cast<uint64_t>(info.stored_bytes());
    Buffer bytes(static_cast<size_t>(std::min(size, kCopyBytes)));
    for (uint64_t at = 0; at < size; at += kCopyBytes) {
      const auto count = static_cast<size_t>(std::min(kCopyBytes, size - at));
      SLUICE_RETURN_IF_ERROR(
          raw_.ReadStoredBytes(info.name, at, count, bytes.as<uint8_t>()));
      SLUICE_RETURN_IF_ERROR(Append(bytes.data(), count, to));
    }
    return OkStatus();
  }

  Status Append(const void* bytes, size_t size, weights::GgufWriter& to) {
    SLUICE_RETURN_IF_ERROR(to.Append(bytes, size));
    done_ += size;
    if (progress_) progress_(done_, report_.bytes_after);
    return OkStatus();
  }

  const ConvertOptions& options_;
  const weights::ModelFile& raw_;
  const ConvertProgress& progress_;
  MatrixQuantizer quantizer_;
  std::vector<GgufOutput> outputs_;
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace

StatusOr<ConvertReport> ConvertGguf(const ConvertOptions& options,
                                    const weights::ModelFile& model,
                                    const ConvertProgress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model.config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, model));
  // The tensors' own names, and their rows in the file's order.
  SLUICE_ASSIGN_OR_RETURN(const auto raw, weights::OpenModel(options.model));
  return GgufConverter(options, *raw, progress).Run(config);
}

}  // namespace sluice
