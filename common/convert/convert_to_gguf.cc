#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/convert/convert_output.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/text/gguf_tokenizer.h"
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
using weights::Slice;
using weights::TensorInfo;

// A tensor of the GGUF.
struct FolderOutput {
  const TensorRow* row = nullptr;  // null: divisors of RoPE's frequencies
  int32_t layer = -1;
  std::string matrix;  // the model's name; empty: no matrix of the options
  TensorInfo tensor;
  std::vector<float> divisors;
};

// Where the rows of one matrix of a GGUF, or of one expert of a stacked one,
// are in the folder.
struct RowSource {
  std::string name;
  Slice slice;  // that has the rows
  // Elements of a row follow one another, else those of a column do.
  bool transposed = false;
  // Of the slice's rows (columns if transposed), in the GGUF's order.
  std::vector<int64_t> order;

  bool is_whole() const {
    return !transposed && std::is_sorted(order.begin(), order.end()) &&
           std::ssize(order) == slice.row_end - slice.row_begin;
  }
};

std::vector<int64_t> Steps(int64_t first, int64_t step, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t& at : order) at = std::exchange(first, first + step);
  return order;
}

// The rows of `heads` heads, each with its halves interleaved.
std::vector<int64_t> Interleaved(int64_t rows, int64_t heads) {
  const int64_t head = rows / heads;
  std::vector<int64_t> order;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row % head;
    order.push_back(row - at + at % 2 * (head / 2) + at / 2);
  }
  return order;
}

// Finds a GGUF's matrices and vectors among the tensors of a folder.
class RowFinder {
 public:
  RowFinder(const ModelConfig& config, const ModelFile& model)
      : config_(config),
        model_(model),
        storage_(ExpertStorageOf(config, model)),
        permuted_(GgufFamilyOf(config.model_type)->permuted) {}

  RowSource Find(const TensorRow& row, int32_t layer, int64_t expert) const {
    if (row.cut == RankCut::kExperts) return OfExpert(row, layer, expert);
    RowSource source;
    source.name = NameOf(row, layer);
    const TensorInfo& info = *model_.Find(source.name);
    source.slice = Slice::All(info);
    source.order = Steps(0, 1, info.rows());
    if (!permuted_) return source;
    const AttentionConfig& attention =
        config_.layers[static_cast<size_t>(std::max(layer, 0))].attention;
    const bool is_q = row.gguf.starts_with("attn_q.");
    if (!is_q && !row.gguf.starts_with("attn_k.")) return source;
    source.transposed = row.is_vector();
    source.order =
        Interleaved(row.is_vector() ? info.cols() : info.rows(),
                    is_q ? attention.num_heads : attention.num_kv_heads);
    return source;
  }

 private:
  RowSource OfExpert(const TensorRow& row, int32_t layer,
                     int64_t expert) const {
    const MoeConfig& moe = config_.layers[static_cast<size_t>(layer)].moe;
    const bool is_bias = row.gguf.ends_with(".bias");
    const bool is_gate = row.gguf.starts_with("ffn_gate");
    const bool is_down = row.gguf.starts_with("ffn_down");
    const int64_t count =
        is_down ? config_.hidden_size : int64_t{moe.intermediate_size};
    RowSource source;
    source.name = NameInFolder(row, layer, expert);
    const TensorInfo& info = *model_.Find(source.name);
    source.slice = Slice::All(info);
    source.order = Steps(0, 1, count);
    if (storage_ == ExpertStorage::kSeparate) return source;
    const bool is_apart = storage_ == ExpertStorage::kApart;
    const int64_t rows = info.rows() / moe.num_experts;
    source.slice = Slice::Rows(info, expert * rows, expert * rows + rows);
    source.transposed = storage_ == ExpertStorage::kTransposed || is_bias;
    if (is_down || is_apart) return source;
    // Gate and up are in one tensor.
    source.order = moe.interleaved ? Steps(is_gate ? 0 : 1, 2, count)
                                   : Steps(is_gate ? 0 : count, 1, count);
    return source;
  }

  // The tensor of a folder that has the rows of kApart's `row`: gate and up
  // have one each, or share one.
  std::string NameInFolder(const TensorRow& row, int32_t layer,
                           int64_t expert) const {
    for (const WeightRows& weight : WeightsOf(config_, layer, storage_)) {
      if (weight.place != row.place) continue;
      const bool is_second =
          weight.rows.size() > 1 && row.gguf.starts_with("ffn_up");
      return NameOf(*weight.rows[is_second ? 1 : 0], layer,
                    static_cast<int32_t>(expert));
    }
    SLUICE_CHECK(false);
  }

  const ModelConfig& config_;
  const ModelFile& model_;
  const ExpertStorage storage_;
  const bool permuted_;
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
    SLUICE_RETURN_IF_ERROR(FinishGguf(partial, options_.out, report_));
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
      if (IsStoredAs(source, type) && !adds_one) {
        SLUICE_RETURN_IF_ERROR(Copy(source, type, to));
        continue;
      }
      Buffer wide;
      SLUICE_RETURN_IF_ERROR(ReadWide(source, wide));
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

  // Whether rows of `type` can be copied.
  bool IsStoredAs(const RowSource& source, DType type) const {
    const TensorInfo& info = *model_.Find(source.name);
    return info.dtype == type && !source.transposed &&
           (weights::BlocksOf(type).has_value() ||
            model_.FindStored(source.name) == &info);
  }

  // Writes rows as they are stored.
  Status Copy(const RowSource& source, DType type, weights::GgufWriter& to) {
    const Slice& slice = source.slice;
    const int64_t cols = slice.col_end - slice.col_begin;
    const weights::BlockSize block = weights::BlockSizeOf(type);
    const auto row = static_cast<size_t>(cols / block.elements * block.bytes);
    Buffer stored(row * static_cast<size_t>(slice.row_end - slice.row_begin));
    SLUICE_RETURN_IF_ERROR(
        model_.ReadStoredRows(source.name, slice, stored.data()));
    if (source.is_whole()) return Append(stored.data(), stored.size(), to);
    for (const int64_t at : source.order) {
      SLUICE_RETURN_IF_ERROR(
          Append(stored.data() + static_cast<size_t>(at) * row, row, to));
    }
    return OkStatus();
  }

  // Reads rows as F32, in the GGUF's order.
  Status ReadWide(const RowSource& source, Buffer& wide) const {
    const Slice& slice = source.slice;
    Buffer read(sizeof(float) * static_cast<size_t>(slice.elements()));
    SLUICE_RETURN_IF_ERROR(
        model_.ReadF32(source.name, slice, read.as<float>()));
    if (source.is_whole()) {
      wide = std::move(read);
      return OkStatus();
    }
    const auto rows = static_cast<size_t>(slice.row_end - slice.row_begin);
    const auto cols = static_cast<size_t>(slice.col_end - slice.col_begin);
    const size_t length = source.transposed ? rows : cols;
    wide = Buffer(sizeof(float) * source.order.size() * length);
    float* out = wide.as<float>();
    for (const int64_t from : source.order) {
      const auto at = static_cast<size_t>(from);
      if (source.transposed) {
        for (size_t i = 0; i < rows; ++i) {
          *out++ = read.as<float>()[i * cols + at];
        }
      } else {
        out = std::copy_n(read.as<float>() + at * cols, cols, out);
      }
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
  const ModelFile& model_;
  const ModelConfig& config_;
  const ConvertProgress& progress_;
  const RowFinder finder_;
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
