#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/text_file.h"
#include "common/model_config/dllama_model.h"
#include "common/model_config/model_config.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/text/dllama_tokenizer.h"
#include "common/tools/convert/convert_output.h"
#include "common/tools/convert/row_source.h"
#include "common/weights/dllama_file.h"

namespace sluice {
namespace {

using weights::DType;
using weights::ModelFile;

// Checks the type, and what is asked for beside it.
Status CheckOneType(const ConvertOptions& options) {
  if (!options.type.has_value() ||
      (*options.type != DType::kF32 && *options.type != DType::kQ4_0 &&
       *options.type != DType::kQ8_0)) {
    return InvalidArgument(
        options.out, ": all matrices of a .m have one type, F32, Q4_0 or Q8_0 ",
        "(f32, q40, q80), ",
        options.type.has_value() ? ToString(*options.type) : "stored",
        " is asked for");
  }
  if (!options.rules.empty()) {
    return InvalidArgument(
        options.out, ": all matrices of a .m have one type, ", "a rule for '",
        options.rules.front().pattern, "' is given");
  }
  if (options.pre_tokenizer.empty()) return OkStatus();
  return InvalidArgument(options.out, ": a .m has no tokenizer.ggml.pre, '",
                         options.pre_tokenizer, "' is given");
}

// The path of the tokenizer of the .m `out`.
std::string TokenizerPathOf(const std::string& out) {
  return std::filesystem::path(out).replace_extension(".t").string();
}

// A file that goes with the one it stands beside: unless that is there at the
// end of the scope, this one is removed.
class Beside {
 public:
  Beside(std::filesystem::path path, std::filesystem::path other)
      : path_(std::move(path)), other_(std::move(other)) {}
  ~Beside() {
    std::error_code ignored;
    if (!std::filesystem::exists(other_, ignored)) {
      std::filesystem::remove(path_, ignored);
    }
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
  const std::filesystem::path other_;
};

class ModelToDllama {
 public:
  ModelToDllama(const ConvertOptions& options, const ModelFile& model,
                const ModelConfig& config, const ConvertProgress& progress)
      : options_(options),
        model_(model),
        config_(config),
        progress_(progress),
        finder_(config, model),
        rows_(model),
        quantizer_(options) {}

  StatusOr<ConvertReport> Run(const weights::DllamaHeader& header) {
    SLUICE_ASSIGN_OR_RETURN(tensors_, DllamaTensorsOf(header));
    SLUICE_RETURN_IF_ERROR(CheckBlocks());
    SLUICE_ASSIGN_OR_RETURN(const std::string start,
                            weights::DllamaHeaderBytes(header));
    SLUICE_ASSIGN_OR_RETURN(const std::string tokenizer, Tokenizer());
    Count();
    SLUICE_RETURN_IF_ERROR(CheckRoom(
        options_.out, report_.bytes_after + start.size() + tokenizer.size()));
    const std::string partial = options_.out + ".partial";
    out_.open(partial, std::ios::binary | std::ios::trunc);
    out_.write(start.data(), static_cast<std::streamsize>(start.size()));
    for (const DllamaTensor& tensor : tensors_) {
      SLUICE_RETURN_IF_ERROR(Write(tensor));
    }
    out_.close();
    SLUICE_RETURN_IF_ERROR(CheckOut());
    return Finish(partial, tokenizer);
  }

 private:
  // Rows that are no whole blocks are in no .m.
  Status CheckBlocks() const {
    for (const DllamaTensor& tensor : tensors_) {
      const int64_t block = weights::BlockSizeOf(tensor.info.dtype).elements;
      if (tensor.info.cols() % block == 0) continue;
      return InvalidArgument("tensor '", tensor.info.name, "' has ",
                             tensor.info.cols(), " columns, blocks of ",
                             tensor.info.dtype, " have ", block,
                             ": a .m of this model has F32");
    }
    return OkStatus();
  }

  StatusOr<std::string> Tokenizer() const {
    VocabularyOptions text;
    text.vocab_size = config_.vocab_size;
    if (config_.bos_token_id >= 0) text.bos = config_.bos_token_id;
    text.eos_ids = config_.eos_token_ids;
    const std::vector<TokenId> more =
        EosTokenIds(model_.generation_config(), config_.vocab_size);
    text.eos_ids.insert(text.eos_ids.end(), more.begin(), more.end());
    return DllamaTokenizerOf(options_.model, text);
  }

  void Count() {
    for (const weights::TensorInfo& info : model_.tensors()) {
      report_.bytes_before += static_cast<uint64_t>(info.stored_bytes());
    }
    for (const DllamaTensor& tensor : tensors_) {
      report_.bytes_after += static_cast<uint64_t>(tensor.info.stored_bytes());
    }
    report_.num_files = 2;
  }

  // Returns the model's rows. A head that is the embedding is written, too.
  RowSource Find(const DllamaTensor& tensor) const {
    const bool is_tied = tensor.place == WeightPlace::kHead &&
                         model_.Find(tensor.info.name) == nullptr;
    const WeightPlace place = is_tied ? WeightPlace::kEmbedding : tensor.place;
    const auto all = WeightsOf(config_, tensor.layer, ExpertStorage::kApart);
    const auto weight = std::find_if(
        all.begin(), all.end(),
        [&](const WeightRows& each) { return each.place == place; });
    SLUICE_CHECK(weight != all.end());
    return finder_.Find(*weight->rows[tensor.row], tensor.layer, tensor.expert);
  }

  Status Write(const DllamaTensor& tensor) {
    const RowSource source = Find(tensor);
    const DType type = tensor.info.dtype;
    double error = 0;
    if (rows_.IsStoredAs(source, type)) {
      SLUICE_ASSIGN_OR_RETURN(const Buffer rows, rows_.ReadStored(source));
      SLUICE_RETURN_IF_ERROR(Append(rows.data(), rows.size()));
    } else {
      SLUICE_ASSIGN_OR_RETURN(const Buffer wide, rows_.ReadWide(source));
      const bool is_part = source.name != tensor.info.name;
      const bool is_expert = tensor.place == WeightPlace::kExpertGateUp ||
                             tensor.place == WeightPlace::kExpertDown;
      SLUICE_ASSIGN_OR_RETURN(
          const auto made,
          quantizer_.Quantize({source.name, tensor.info.cols(),
                               is_expert && is_part ? tensor.expert : -1},
                              type, wide.as<float>(), tensor.info.elements()));
      error = made.relative_error;
      SLUICE_RETURN_IF_ERROR(Append(made.bytes.data(), made.bytes.size()));
    }
    if (tensor.is_matrix) {
      report_.matrices.push_back(
          {tensor.info.name, type,
           static_cast<uint64_t>(tensor.info.stored_bytes()), error});
    }
    return OkStatus();
  }

  Status Append(const void* bytes, size_t size) {
    out_.write(static_cast<const char*>(bytes),
               static_cast<std::streamsize>(size));
    done_ += size;
    if (progress_) progress_(done_, report_.bytes_after);
    return CheckOut();
  }

  Status CheckOut() const {
    if (out_.good()) return OkStatus();
    return Unavailable(options_.out,
                       ".partial: cannot be written: ", std::strerror(errno));
  }

  // Gives both files their names, the tokenizer first: a .m has it beside it.
  StatusOr<ConvertReport> Finish(const std::string& partial,
                                 const std::string& tokenizer) {
    const Beside beside(TokenizerPathOf(options_.out), options_.out);
    const std::filesystem::path whole = beside.path().string() + ".partial";
    SLUICE_RETURN_IF_ERROR(WriteTextFile(whole.string(), tokenizer));
    std::error_code error;
    std::filesystem::rename(whole, beside.path(), error);
    if (error) {
      return Unavailable(beside.path().string(),
                         ": cannot be made: ", error.message());
    }
    SLUICE_RETURN_IF_ERROR(FinishFile(partial, options_.out, report_));
    return std::move(report_);
  }

  const ConvertOptions& options_;
  const ModelFile& model_;
  const ModelConfig& config_;
  const ConvertProgress& progress_;
  const RowFinder finder_;
  const RowReader rows_;
  MatrixQuantizer quantizer_;
  std::vector<DllamaTensor> tensors_;
  std::ofstream out_;
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace

StatusOr<ConvertReport> ConvertToDllama(const ConvertOptions& options,
                                        const ModelFile& model,
                                        const ConvertProgress& progress) {
  SLUICE_RETURN_IF_ERROR(CheckOneType(options));
  SLUICE_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(model.config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, model));
  // Layers behind the last answer no token.
  config.num_nextn_predict_layers = 0;
  SLUICE_ASSIGN_OR_RETURN(const weights::DllamaHeader header,
                          DllamaHeaderOf(config, *options.type));
  const std::string tokenizer = TokenizerPathOf(options.out);
  std::error_code ignored;
  if (std::filesystem::exists(tokenizer, ignored)) {
    return InvalidArgument(tokenizer, ", OUT's tokenizer, is there already");
  }
  return ModelToDllama(options, model, config, progress).Run(header);
}

}  // namespace sluice
