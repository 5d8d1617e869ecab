#include "common/tools/convert/folder_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/base/text_file.h"
#include "common/tensor/buffer.h"
#include "common/tools/convert/convert_output.h"
#include "common/weights/block_tensor.h"
#include "common/weights/composed_tensor.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using kernels::kShortBlock;
using weights::DType;
using weights::TensorInfo;

constexpr std::string_view kWeightSuffix = ".weight";

// How the elements of a tensor lie in its file.
enum class Layout { kPlain, kPacked, kStackedMxfp4, kBlocks, kCoded };

// Whether bytes that are appended are written as they are.
bool IsWrittenAsItIs(Layout layout) {
  return layout != Layout::kPacked && layout != Layout::kStackedMxfp4;
}

Layout LayoutOf(const FolderTensor& tensor) {
  const TensorInfo& info = tensor.info;
  if (tensor.is_coded()) return Layout::kCoded;
  if (!weights::BlocksOf(info.dtype).has_value()) return Layout::kPlain;
  const bool is_linear =
      info.shape.size() == 2 && info.name.ends_with(kWeightSuffix);
  if (info.dtype == DType::kQ4_0 || info.dtype == DType::kQ8_0) {
    return is_linear ? Layout::kPacked : Layout::kBlocks;
  }
  return info.dtype == DType::kMxfp4 && !is_linear ? Layout::kStackedMxfp4
                                                   : Layout::kBlocks;
}

int BitsOf(DType type) { return type == DType::kQ8_0 ? 8 : 4; }

// Where a block's parts are.
struct BlockParts {
  size_t bytes = 0;
  size_t scale_bytes = 0;  // in front of the codes
  size_t code_bytes() const { return bytes - scale_bytes; }
};

BlockParts PartsOf(DType type) {
  const auto bytes = static_cast<size_t>(weights::BlockSizeOf(type).bytes);
  return {bytes, type == DType::kMxfp4 ? 1 : sizeof(uint16_t)};
}

// Writes a block's codes in the order of its elements, the first one lowest,
// with the middle added: what a stored Q4_0 has, and Q8_0 with 128 added.
void OrderCodes(DType type, const uint8_t* codes, size_t size, uint8_t* out) {
  for (size_t i = 0; i < size; ++i) {
    if (type == DType::kQ8_0) {
      out[i] = codes[i] ^ 0x80;
      continue;
    }
    // Elements 2i and 2i + 1: of low halves, then of high ones.
    const size_t first = 2 * i % 16;
    const int shift = i < 8 ? 0 : 4;
    out[i] = static_cast<uint8_t>((codes[first] >> shift & 15) |
                                  (codes[first + 1] >> shift & 15) << 4);
  }
}

// "q_proj" of "q_proj.weight".
std::string ModuleOf(const std::string& name) {
  return name.ends_with(kWeightSuffix)
             ? name.substr(0, name.size() - kWeightSuffix.size())
             : name;
}

// What compressed-tensors says of matrices by type: a group per number of
// bits. The one that is not of type `common` names its modules.
Json CompressedTensors(const std::map<DType, Json>& modules,
                       std::optional<DType> common, Json ignored) {
  Json groups = Json::object();
  for (const auto& [type, names] : modules) {
    const bool is_common = modules.size() == 1 || type == common;
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

}  // namespace

std::vector<TensorInfo> FolderTensor::stored() const {
  switch (LayoutOf(*this)) {
    case Layout::kPlain:
      return {info};
    case Layout::kBlocks:
      return {weights::BytesOfBlocks(info)};
    case Layout::kPacked: {
      const int64_t words =
          info.cols() / (weights::kWordBits / BitsOf(info.dtype));
      return {{info.name + "_packed", DType::kI32, {info.rows(), words}},
              {info.name + "_scale",
               DType::kF16,
               {info.rows(), info.cols() / kShortBlock}},
              {info.name + "_shape", DType::kI64, {2}}};
    }
    case Layout::kCoded:
      return weights::TensorsOf(info, coding);
    case Layout::kStackedMxfp4:
      break;
  }
  std::vector<int64_t> scales = info.shape;
  scales.back() /= kShortBlock;
  std::vector<int64_t> blocks = scales;
  blocks.push_back(kShortBlock / 2);
  return {{info.name + "_blocks", DType::kU8, std::move(blocks)},
          {info.name + "_scales", DType::kU8, std::move(scales)}};
}

uint64_t FolderTensor::bytes() const {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : stored()) {
    sum += static_cast<uint64_t>(tensor.stored_bytes());
  }
  return sum;
}

FolderWriter::FolderWriter(const ConvertOptions& options,
                           const ConvertProgress& progress)
    : options_(options),
      progress_(progress),
      folder_(options.out + ".partial") {}

Status FolderWriter::Start(std::vector<FolderTensor> tensors,
                           uint64_t bytes_before) {
  tensors_ = std::move(tensors);
  SLUICE_RETURN_IF_ERROR(ChooseCodings(options_, tensors_));
  report_.bytes_before = bytes_before;
  uint64_t of_shard = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t bytes = tensors_[i].bytes();
    report_.bytes_after += bytes;
    if (shards_.empty() || of_shard + bytes > options_.shard_bytes) {
      shards_.push_back(i);
      of_shard = 0;
    }
    of_shard += bytes;
  }
  report_.num_files = static_cast<int>(shards_.size());
  SLUICE_RETURN_IF_ERROR(CheckRoom(options_.out, report_.bytes_after));
  std::error_code error;
  fs::remove_all(folder_, error);
  if (fs::create_directories(folder_, error)) return OkStatus();
  return Unavailable(folder_, ": cannot be made: ", error.message());
}

std::string FolderWriter::ShardName(size_t shard) const {
  if (shards_.size() == 1) return "model.safetensors";
  char name[48];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors",
                shard + 1, shards_.size());
  return name;
}

Status FolderWriter::Write(const Fill& fill) {
  Json index = {{"metadata", {{"total_size", report_.bytes_after}}},
                {"weight_map", Json::object()}};
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const std::string name = ShardName(shard);
    const size_t end =
        shard + 1 < shards_.size() ? shards_[shard + 1] : tensors_.size();
    std::vector<TensorInfo> stored;
    for (size_t i = shards_[shard]; i < end; ++i) {
      for (TensorInfo& tensor : tensors_[i].stored()) {
        index["weight_map"][tensor.name] = name;
        stored.push_back(std::move(tensor));
      }
    }
    SLUICE_ASSIGN_OR_RETURN(shard_, weights::SafetensorsWriter::Create(
                                        Cat(folder_, "/", name), stored));
    for (size_t i = shards_[shard]; i < end; ++i) {
      SLUICE_RETURN_IF_ERROR(WriteTensor(i, fill));
    }
    SLUICE_RETURN_IF_ERROR(shard_->Close());
  }
  if (shards_.size() == 1) return OkStatus();
  return WriteTextFile(folder_ + "/model.safetensors.index.json",
                       DumpJson(index) + "\n");
}

Status FolderWriter::WriteTensor(size_t index, const Fill& fill) {
  filled_ = &tensors_[index];
  const TensorInfo& info = filled_->info;
  SLUICE_ASSIGN_OR_RETURN(const double error, fill(*filled_, index));
  if (filled_->is_matrix) {
    report_.matrices.push_back({info.name, info.dtype, filled_->bytes(), error,
                                filled_->coding.coding});
  }
  const Layout layout = LayoutOf(*filled_);
  if (IsWrittenAsItIs(layout)) return OkStatus();
  SLUICE_RETURN_IF_ERROR(Put(scales_.data(), scales_.size()));
  scales_.clear();
  if (layout != Layout::kPacked) return OkStatus();
  const int64_t shape[] = {info.rows(), info.cols()};
  return Put(shape, sizeof(shape));
}

Status FolderWriter::Append(const void* bytes, size_t size) {
  if (IsWrittenAsItIs(LayoutOf(*filled_))) return Put(bytes, size);
  const size_t block = PartsOf(filled_->info.dtype).bytes;
  SLUICE_CHECK(size % block == 0);
  return AppendBlocks(static_cast<const uint8_t*>(bytes),
                      static_cast<int64_t>(size / block));
}

Status FolderWriter::AppendBlocks(const uint8_t* blocks, int64_t count) {
  const DType type = filled_->info.dtype;
  const BlockParts parts = PartsOf(type);
  Buffer codes(static_cast<size_t>(count) * parts.code_bytes());
  uint8_t* out = codes.as<uint8_t>();
  for (int64_t i = 0; i < count; ++i, blocks += parts.bytes) {
    scales_.append(reinterpret_cast<const char*>(blocks), parts.scale_bytes);
    OrderCodes(type, blocks + parts.scale_bytes, parts.code_bytes(), out);
    out += parts.code_bytes();
  }
  return Put(codes.data(), codes.size());
}

Status FolderWriter::Put(const void* bytes, size_t size) {
  SLUICE_RETURN_IF_ERROR(shard_->Append(bytes, size));
  done_ += size;
  if (progress_) progress_(done_, report_.bytes_after);
  return OkStatus();
}

Status FolderWriter::WriteConfig(Json config) const {
  config.erase("quantization_config");
  Json quantisation = Quantisation();
  if (!quantisation.is_null()) {
    config["quantization_config"] = std::move(quantisation);
  }
  return WriteTextFile(folder_ + "/config.json", DumpJson(config) + "\n");
}

// Says compressed-tensors or MXFP4 where other engines know all matrices, else
// the types of the modules.
Json FolderWriter::Quantisation() const {
  if (options_.coding != weights::Coding::kNone) {
    return CodedQuantisation(options_, tensors_);
  }
  std::map<DType, Json> modules;
  Json plain = Json::array();
  bool has_head = false;
  bool is_mxfp4 = false;
  bool is_packed = false;
  bool is_blocks = false;
  for (const FolderTensor& tensor : tensors_) {
    if (!tensor.is_matrix) continue;
    const TensorInfo& info = tensor.info;
    const Layout layout = LayoutOf(tensor);
    has_head = has_head || info.name == "lm_head.weight";
    is_mxfp4 = is_mxfp4 || layout == Layout::kStackedMxfp4;
    is_packed = is_packed || layout == Layout::kPacked;
    is_blocks = is_blocks || layout == Layout::kBlocks;
    if (layout == Layout::kPlain) {
      if (info.name.ends_with(kWeightSuffix)) {
        plain.push_back(ModuleOf(info.name));
      }
    } else {
      modules[info.dtype].push_back(ModuleOf(info.name));
    }
  }
  if (modules.empty()) return Json();
  if (!has_head) plain.push_back("lm_head");
  if (is_packed && !is_blocks && !is_mxfp4) {
    return CompressedTensors(modules, options_.type, std::move(plain));
  }
  if (is_mxfp4 && !is_blocks && !is_packed) {
    return {{"quant_method", "mxfp4"},
            {"modules_to_not_convert", std::move(plain)}};
  }
  Json types = Json::object();
  for (auto& [type, names] : modules) {
    types[std::string(ToString(type))] = std::move(names);
  }
  return {{"quant_method", "sluice"}, {"modules", std::move(types)}};
}

StatusOr<ConvertReport> FolderWriter::Finish() {
  SLUICE_RETURN_IF_ERROR(
      WriteReport(folder_ + "/convert_report.json", report_));
  SLUICE_RETURN_IF_ERROR(WriteSums(folder_));
  std::error_code error;
  fs::rename(folder_, options_.out, error);
  if (!error) return std::move(report_);
  return Unavailable(options_.out, ": cannot be made: ", error.message());
}

}  // namespace sluice
