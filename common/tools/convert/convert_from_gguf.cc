#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/model_config/model_config.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/tools/convert/convert_output.h"
#include "common/tools/convert/folder_writer.h"
#include "common/weights/gguf_file.h"
#include "common/weights/quantize.h"
#include "common/weights/widen_blocks.h"

namespace sluice {
namespace {

using weights::DType;
using weights::ModelFile;
using weights::Slice;
using weights::TensorInfo;

bool IsPlain(DType type) {
  return !weights::BlocksOf(type).has_value() && !weights::IsRareBlocks(type);
}

// The key of a GGUF's config that tells of norms' weights with the 1 that
// config.json's families add.
constexpr char kNormsAddOne[] = "norms_add_one";

// Where a tensor of the folder, or of a stacked one each expert's part, comes
// from.
struct GgufSource {
  // Tensors of the GGUF, gate and up: their rows alternate.
  std::vector<std::string> names;
  int32_t expert = -1;       // of tensors that stack experts; -1: all
  bool is_stacked = false;   // the folder's tensor stacks experts, too
  bool transposed = false;   // its columns are the sources' rows
  bool is_elements = false;  // single elements alternate, not rows
  bool has_one = false;      // a norm with a 1 that the folder's has not
};

// The tokenizer and the templates of a model.
struct ModelText {
  TextSource source;
  std::vector<NamedTemplate> templates;
};

StatusOr<ModelText> ReadText(const std::string& path) {
  ModelText text;
  SLUICE_ASSIGN_OR_RETURN(text.source, ReadTextSource(path));
  SLUICE_ASSIGN_OR_RETURN(text.templates, ReadChatTemplates(path));
  return text;
}

// Writes them so that a reader of `folder` finds the same.
Status WriteText(const ModelText& text, const std::string& folder) {
  const auto& [source, templates] = text;
  SLUICE_RETURN_IF_ERROR(
      WriteTextFile(folder + "/tokenizer.json", source.tokenizer_json));
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, const std::string&> names[] = {
      {"bos_token", source.bos_token},
      {"eos_token", source.eos_token},
      {"pad_token", source.pad_token},
      {"unk_token", source.unk_token}};
  for (const auto& [key, name] : names) {
    if (!name.empty()) config[key] = name;
  }
  if (templates.size() == 1 && templates[0].name == "default") {
    SLUICE_RETURN_IF_ERROR(
        WriteTextFile(folder + "/chat_template.jinja", templates[0].source));
  } else if (!templates.empty()) {
    for (const NamedTemplate& each : templates) {
      config["chat_template"].push_back(
          {{"name", each.name}, {"template", each.source}});
    }
  }
  return WriteTextFile(folder + "/tokenizer_config.json",
                       DumpJson(config) + "\n");
}

class GgufToFolder {
 public:
  GgufToFolder(const ConvertOptions& options, const ModelFile& model,
               const ModelConfig& config, const ConvertProgress& progress)
      : options_(options),
        model_(model),
        config_(config),
        writer_(options, progress),
        quantizer_(options) {}

  StatusOr<ConvertReport> Run() {
    // An unknown tokenizer is told before a byte is written.
    std::optional<ModelText> text;
    const weights::GgufMetadata* gguf = model_.gguf();
    if (gguf == nullptr || gguf->Has("tokenizer.ggml.model")) {
      SLUICE_ASSIGN_OR_RETURN(text, ReadText(options_.model));
    }
    SLUICE_RETURN_IF_ERROR(Plan());
    SLUICE_RETURN_IF_ERROR(
        writer_.Write([&](const FolderTensor& tensor, size_t index) {
          return Fill(tensor, sources_[index]);
        }));
    SLUICE_RETURN_IF_ERROR(WriteConfig());
    SLUICE_RETURN_IF_ERROR(WriteGenerationConfig(text));
    if (text.has_value()) {
      SLUICE_RETURN_IF_ERROR(WriteText(*text, writer_.folder()));
    }
    return writer_.Finish();
  }

 private:
  Status Plan() {
    SLUICE_ASSIGN_OR_RETURN(const ConvertTypes types,
                            ConvertTypes::Make(options_));
    storage_ = StorageOf(types);
    const ExpertStorage own = ExpertStorageOf(config_, model_);
    for (int32_t layer = -1; layer < config_.num_layers(); ++layer) {
      const auto stored = WeightsOf(config_, layer, own);
      for (const WeightRows& weight : WeightsOf(config_, layer, storage_)) {
        const auto from = std::find_if(
            stored.begin(), stored.end(),
            [&](const WeightRows& each) { return each.place == weight.place; });
        Add(weight, *from, layer, types);
      }
    }
    uint64_t bytes_before = 0;
    for (const TensorInfo& tensor : model_.tensors()) {
      bytes_before += static_cast<uint64_t>(tensor.stored_bytes());
    }
    return writer_.Start(std::move(tensors_), bytes_before);
  }

  // Returns how the folder stores experts. Where gate and up alternate, there
  // are two known ways: MXFP4, or plain elements transposed.
  ExpertStorage StorageOf(const ConvertTypes& types) const {
    if (!config_.moe().interleaved) {
      const bool is_stacked =
          !config_.tensors->stacked.empty() ||
          ExpertStorageOf(config_, model_) == ExpertStorage::kStacked;
      return is_stacked ? ExpertStorage::kStacked : ExpertStorage::kSeparate;
    }
    bool all_mxfp4 = true;
    bool all_plain = true;
    for (int32_t layer = 0; layer < config_.num_layers(); ++layer) {
      for (const WeightRows& weight :
           WeightsOf(config_, layer, ExpertStorage::kApart)) {
        if (weight.first().cut != RankCut::kExperts) continue;
        for (const TensorRow* row : weight.rows) {
          if (row->is_f32()) continue;
          const DType type = TypeOf(NameOf(*row, layer), *row, layer, 0, types);
          all_mxfp4 = all_mxfp4 && type == DType::kMxfp4;
          all_plain = all_plain && IsPlain(type);
        }
      }
    }
    if (all_mxfp4) return ExpertStorage::kStacked;
    return all_plain ? ExpertStorage::kTransposed : ExpertStorage::kApart;
  }

  // Returns the type of a tensor that has the rows of the GGUF's `row`.
  DType TypeOf(const std::string& name, const TensorRow& row, int32_t layer,
               int32_t expert, const ConvertTypes& types) const {
    const TensorInfo& info = *model_.Find(NameOf(row, layer, expert));
    if (row.is_f32()) return IsPlain(info.dtype) ? info.dtype : DType::kF32;
    const auto type = types.Of(name, info.cols(), layer >= 0);
    // Four bits again would lose more than they save.
    const bool is_kept =
        info.dtype == DType::kMxfp4 && !types.RuleOf(name).has_value();
    if (!is_kept && type.has_value()) return *type;
    // A folder has no form for these blocks.
    return weights::IsRareBlocks(info.dtype) ? DType::kF32 : info.dtype;
  }

  // Adds the tensors of a weight, which the GGUF has in the rows of `from`.
  void Add(const WeightRows& weight, const WeightRows& from, int32_t layer,
           const ConvertTypes& types) {
    const bool is_joined = weight.rows.size() < from.rows.size();
    for (size_t i = 0; i < weight.rows.size(); ++i) {
      const TensorRow& row = *weight.rows[i];
      const auto rows =
          is_joined ? from.rows : std::vector<const TensorRow*>{from.rows[i]};
      const int32_t copies =
          row.per_expert() ? config_.layers[layer].moe.num_experts : 1;
      for (int32_t expert = 0; expert < copies; ++expert) {
        FolderTensor tensor;
        tensor.info.name = NameOf(row, layer, expert);
        for (const Dimension& size : DimensionsOf(row, config_, layer)) {
          tensor.info.shape.push_back(size.size);
        }
        tensor.is_matrix = !row.is_f32();
        GgufSource source;
        for (const TensorRow* each : rows) {
          const std::string& name =
              source.names.emplace_back(NameOf(*each, layer, expert));
          const DType type = TypeOf(row.per_expert() ? tensor.info.name : name,
                                    *each, layer, expert, types);
          const bool differs =
              source.names.size() > 1 && type != tensor.info.dtype;
          tensor.info.dtype = differs ? DType::kF32 : type;
        }
        if (row.per_expert() && !rows[0]->per_expert()) source.expert = expert;
        if (!row.is_f32() && types.IsCoded(tensor.info.name, layer >= 0)) {
          tensor.coding.coding = options_.coding;
          tensor.info.dtype = DType::kF32;
        }
        source.has_one = model_.config().contains(kNormsAddOne) &&
                         IsNormWeight(weight.place);
        if (source.has_one) tensor.info.dtype = DType::kF32;
        source.is_stacked = row.cut == RankCut::kExperts && !row.per_expert();
        source.is_elements = row.cut == RankCut::kExperts && row.is_f32();
        source.transposed = source.is_stacked && !source.is_elements &&
                            storage_ == ExpertStorage::kTransposed;
        tensors_.push_back(std::move(tensor));
        sources_.push_back(std::move(source));
      }
    }
  }

  StatusOr<double> Fill(const FolderTensor& tensor, const GgufSource& source) {
    ErrorSum error;
    if (!source.is_stacked) {
      SLUICE_RETURN_IF_ERROR(FillPart(tensor, source, source.expert, error));
      return error.relative();
    }
    const auto experts = static_cast<int32_t>(tensor.info.shape[0]);
    for (int32_t expert = 0; expert < experts; ++expert) {
      SLUICE_RETURN_IF_ERROR(FillPart(tensor, source, expert, error));
    }
    return error.relative();
  }

  // Appends what the tensor has of one expert, of -1 all.
  Status FillPart(const FolderTensor& tensor, const GgufSource& source,
                  int32_t expert, ErrorSum& error) {
    const weights::BlockSize block = weights::BlockSizeOf(tensor.info.dtype);
    std::vector<Buffer> parts;
    int64_t cols = 0;
    ErrorSum of_widening;  // is none
    for (const std::string& name : source.names) {
      const TensorInfo& info = *model_.Find(name);
      Slice slice = Slice::All(info);
      if (expert >= 0) {
        const int64_t rows = info.rows() / info.shape[0];
        slice = Slice::Rows(info, expert * rows, expert * rows + rows);
      }
      cols = info.cols();
      SLUICE_RETURN_IF_ERROR(Read({name, cols, expert}, slice,
                                  tensor.info.dtype, parts.emplace_back(),
                                  tensor.is_coded() ? of_widening : error));
    }
    // Gate's rows stand before up's, or alternate with them.
    const int64_t unit = source.is_elements ? 1 : cols;
    const size_t bytes = config_.moe().interleaved
                             ? static_cast<size_t>(unit / block.elements) *
                                   static_cast<size_t>(block.bytes)
                             : parts[0].size();
    Buffer all = Alternate(std::move(parts), bytes);
    if (source.has_one) {
      float* const weights = all.as<float>();
      for (size_t i = 0; i < all.size() / sizeof(float); ++i) weights[i] -= 1;
    }
    if (source.transposed) {
      all = Transposed(all, static_cast<size_t>(cols),
                       static_cast<size_t>(block.bytes));
    }
    return tensor.is_coded() ? AppendCoded(tensor, all.as<float>(), error)
                             : writer_.Append(all.data(), all.size());
  }

  // Appends a whole matrix as its coding has it.
  Status AppendCoded(const FolderTensor& tensor, const float* elements,
                     ErrorSum& error) {
    const int64_t count = tensor.info.elements();
    SLUICE_ASSIGN_OR_RETURN(
        const auto made,
        quantizer_.Encode({tensor.info.name, tensor.info.cols()}, tensor.coding,
                          elements, count));
    error.Add(elements, count, made.relative_error);
    return writer_.Append(made.bytes.data(), made.bytes.size());
  }

  // Reads the slice in the type.
  Status Read(const MatrixName& matrix, const Slice& slice, DType type,
              Buffer& to, ErrorSum& error) {
    const std::string& name = matrix.name;
    const TensorInfo& info = *model_.Find(name);
    const int64_t count = slice.elements();
    if (info.dtype == type) {
      const weights::BlockSize block = weights::BlockSizeOf(type);
      to = Buffer(static_cast<size_t>(count / block.elements * block.bytes));
      return model_.ReadStoredRows(name, slice, to.data());
    }
    Buffer wide(sizeof(float) * static_cast<size_t>(count));
    SLUICE_RETURN_IF_ERROR(model_.ReadF32(name, slice, wide.as<float>()));
    SLUICE_ASSIGN_OR_RETURN(
        auto made, quantizer_.Quantize(matrix, type, wide.as<float>(), count));
    error.Add(wide.as<float>(), count, made.relative_error);
    to = std::move(made.bytes);
    return OkStatus();
  }

  // Returns the parts' units of so many bytes, one of each part in turn.
  static Buffer Alternate(std::vector<Buffer> parts, size_t unit) {
    if (parts.size() == 1) return std::move(parts[0]);
    Buffer all(parts[0].size() * parts.size());
    std::byte* out = all.data();
    for (size_t at = 0; at < parts[0].size(); at += unit) {
      for (const Buffer& part : parts) {
        out = std::copy_n(part.data() + at, unit, out);
      }
    }
    return all;
  }

  // Returns rows of `cols` elements as columns.
  static Buffer Transposed(const Buffer& from, size_t cols, size_t element) {
    const size_t rows = from.size() / element / cols;
    Buffer to(from.size());
    std::byte* out = to.data();
    for (size_t col = 0; col < cols; ++col) {
      for (size_t row = 0; row < rows; ++row) {
        out = std::copy_n(from.data() + (row * cols + col) * element, element,
                          out);
      }
    }
    return to;
  }

  Status WriteConfig() const {
    Json config = model_.config();
    config.erase(std::string(kNormsAddOne));
    // Layers behind the last are left out.
    if (config.contains("num_nextn_predict_layers")) {
      config["num_nextn_predict_layers"] = 0;
    }
    return writer_.WriteConfig(std::move(config));
  }

  // Writes the ids that begin and end a text; a tokenizer may end more.
  Status WriteGenerationConfig(const std::optional<ModelText>& text) const {
    const Json& config = model_.config();
    Json generation = Json::object();
    const auto bos = config.find("bos_token_id");
    if (bos != config.end() && !bos->is_null()) {
      generation["bos_token_id"] = *bos;
    }
    std::vector<TokenId> eos = EosTokenIds(config, config_.vocab_size);
    if (text.has_value()) {
      SLUICE_ASSIGN_OR_RETURN(const auto tokenizer,
                              Tokenizer::Make(text->source));
      for (const TokenId id : tokenizer->eos_ids()) {
        const bool is_new = std::find(eos.begin(), eos.end(), id) == eos.end();
        if (is_new && id < config_.vocab_size) eos.push_back(id);
      }
    }
    if (!eos.empty()) generation["eos_token_id"] = eos;
    return WriteTextFile(writer_.folder() + "/generation_config.json",
                         DumpJson(generation) + "\n");
  }

  const ConvertOptions& options_;
  const ModelFile& model_;
  const ModelConfig& config_;
  FolderWriter writer_;
  MatrixQuantizer quantizer_;
  ExpertStorage storage_ = ExpertStorage::kSeparate;  // of the folder
  std::vector<FolderTensor> tensors_;
  std::vector<GgufSource> sources_;  // of tensors_
};

}  // namespace

StatusOr<ConvertReport> ConvertFromGguf(const ConvertOptions& options,
                                        const ModelFile& model,
                                        const ConvertProgress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model.config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, model));
  return GgufToFolder(options, model, config, progress).Run();
}

}  // namespace sluice
