#include "common/model/expert_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/weights/dequantize.h"
#include "kernels/views.h"

namespace sluice {
namespace {

using kernels::WeightType;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

constexpr int64_t kPackedGroup = kernels::kMxfp4Group;

size_t BytesPerElement(WeightType type) {
  return type == WeightType::kBf16 ? 2 : 4;
}

Status ReadSliceAs(const weights::ModelFile& file, const std::string& name,
                   const Slice& slice, WeightType type, std::byte* out) {
  return type == WeightType::kBf16
             ? file.ReadBf16(name, slice, reinterpret_cast<uint16_t*>(out))
             : file.ReadF32(name, slice, reinterpret_cast<float*>(out));
}

HostWeight EmptyWeight(WeightType type, int64_t rows, int64_t cols) {
  HostWeight weight;
  weight.type = type;
  weight.rows = rows;
  weight.cols = cols;
  weight.data = Buffer(BytesPerElement(type) * rows * cols);
  return weight;
}

// to[row_of(c)][r] = from[r][c]; from [rows, cols].
template <typename T, typename RowOf>
void Transpose(const T* from, int64_t rows, int64_t cols, const RowOf& row_of,
               T* to) {
  for (int64_t c = 0; c < cols; ++c) {
    T* row = to + row_of(c) * rows;
    for (int64_t r = 0; r < rows; ++r) row[r] = from[r * cols + c];
  }
}

}  // namespace

ExpertLoader::ExpertLoader(const weights::ModelFile& file,
                           const ModelConfig& config, WeightsMode mode)
    : file_(file),
      config_(config),
      mode_(mode),
      storage_(ExpertStorageOf(config, file)) {}

ExpertLoader::Matrix ExpertLoader::GateUp() const {
  return {true, 2 * int64_t{config_.moe.intermediate_size},
          config_.hidden_size};
}

ExpertLoader::Matrix ExpertLoader::Down() const {
  return {false, config_.hidden_size, config_.moe.intermediate_size};
}

std::string ExpertLoader::Prefix(int32_t layer) const {
  return Cat("model.layers.", layer, ".mlp.experts.");
}

std::vector<std::string> ExpertLoader::NamesOf(int32_t layer, int32_t expert,
                                               const Matrix& matrix) const {
  const std::string prefix = Prefix(layer);
  const std::string stacked =
      prefix + (matrix.is_gate_up ? "gate_up_proj" : "down_proj");
  if (storage_ == ExpertStorage::kMxfp4) {
    return {stacked + "_blocks", stacked + "_scales"};
  }
  if (storage_ != ExpertStorage::kSeparate) return {stacked};
  const std::string own = Cat(prefix, expert, ".");
  if (!matrix.is_gate_up) return {own + "down_proj.weight"};
  return {own + "gate_proj.weight", own + "up_proj.weight"};
}

int64_t ExpertLoader::Row(const Matrix& matrix, int64_t row) const {
  if (!matrix.is_gate_up || !config_.moe.interleaved) return row;
  return row / 2 + row % 2 * (matrix.rows / 2);
}

uint64_t ExpertLoader::StoredBytes(int32_t layer, ExpertRange range) const {
  const bool separate = storage_ == ExpertStorage::kSeparate;
  uint64_t bytes = 0;
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : {GateUp(), Down()}) {
      for (const std::string& name : NamesOf(layer, e, matrix)) {
        const auto stored =
            static_cast<uint64_t>(file_.Find(name)->stored_bytes());
        bytes += separate ? stored : stored / config_.moe.num_experts;
      }
    }
  }
  return bytes;
}

uint64_t ExpertLoader::HeldBytes(int32_t layer, ExpertRange range) const {
  uint64_t bytes = 0;
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : {GateUp(), Down()}) {
      const auto elements = static_cast<uint64_t>(matrix.rows * matrix.cols);
      const WeightType type = TypeOf(layer, e, matrix);
      bytes += type == WeightType::kMxfp4
                   ? elements / 2 + elements / kPackedGroup  // codes, scales
                   : BytesPerElement(type) * elements;
      if (config_.moe.expert_bias) {
        bytes += sizeof(float) * static_cast<uint64_t>(matrix.rows);
      }
    }
  }
  return bytes;
}

StatusOr<HostWeight> ExpertLoader::ReadPacked(int32_t layer, int32_t expert,
                                              const Matrix& matrix) {
  const std::vector<std::string> names = NamesOf(layer, expert, matrix);
  const int64_t groups = matrix.cols / kPackedGroup;  // per row
  const int64_t code_bytes = matrix.cols / 2;         // per row
  Buffer codes(code_bytes * matrix.rows);
  Buffer scales(groups * matrix.rows);
  const int64_t all = matrix.rows * groups;
  SLUICE_RETURN_IF_ERROR(file_.ReadStored(
      names[0], expert * all, (expert + 1) * all, codes.as<uint8_t>()));
  SLUICE_RETURN_IF_ERROR(file_.ReadStored(names[1], expert * matrix.rows,
                                          (expert + 1) * matrix.rows,
                                          scales.as<uint8_t>()));
  HostWeight weight;
  weight.type = WeightType::kMxfp4;
  weight.rows = matrix.rows;
  weight.cols = matrix.cols;
  weight.data = Buffer(codes.size());
  weight.scales = Buffer(scales.size());
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const int64_t to = Row(matrix, row);
    std::memcpy(weight.data.data() + to * code_bytes,
                codes.data() + row * code_bytes, code_bytes);
    std::memcpy(weight.scales.data() + to * groups,
                scales.data() + row * groups, groups);
  }
  if (mode_ == WeightsMode::kAuto) return weight;
  HostWeight wide = EmptyWeight(WeightType::kF32, matrix.rows, matrix.cols);
  weights::DequantizeMxfp4(weight.data.as<uint8_t>(),
                           weight.scales.as<uint8_t>(), all,
                           wide.data.as<float>());
  if (mode_ == WeightsMode::kF32) return wide;
  HostWeight narrow = EmptyWeight(WeightType::kBf16, matrix.rows, matrix.cols);
  std::transform(wide.data.as<float>(),
                 wide.data.as<float>() + matrix.rows * matrix.cols,
                 narrow.data.as<uint16_t>(), weights::F32ToBf16);
  return narrow;
}

WeightType ExpertLoader::TypeOf(int32_t layer, int32_t expert,
                                const Matrix& matrix) const {
  if (mode_ == WeightsMode::kBf16) return WeightType::kBf16;
  if (mode_ == WeightsMode::kF32) return WeightType::kF32;
  if (storage_ == ExpertStorage::kMxfp4) return WeightType::kMxfp4;
  const std::vector<std::string> names = NamesOf(layer, expert, matrix);
  const bool all_bf16 =
      std::all_of(names.begin(), names.end(), [&](const std::string& name) {
        return file_.Find(name)->dtype == DType::kBF16;
      });
  return all_bf16 ? WeightType::kBf16 : WeightType::kF32;
}

void ExpertLoader::NoteUsed(int32_t layer, ExpertRange range) {
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : {GateUp(), Down()}) {
      const WeightType type = TypeOf(layer, e, matrix);
      used_bf16_ |= type == WeightType::kBf16;
      used_mxfp4_ |= type == WeightType::kMxfp4;
    }
  }
}

StatusOr<HostWeight> ExpertLoader::Read(int32_t layer, int32_t expert,
                                        const Matrix& matrix) {
  if (storage_ == ExpertStorage::kMxfp4) {
    return ReadPacked(layer, expert, matrix);
  }
  const std::vector<std::string> names = NamesOf(layer, expert, matrix);
  const WeightType type = TypeOf(layer, expert, matrix);
  const bool bf16 = type == WeightType::kBf16;
  HostWeight weight = EmptyWeight(type, matrix.rows, matrix.cols);
  if (storage_ == ExpertStorage::kTransposed) {
    Buffer stored(weight.data.size());
    const Slice slice = {expert * matrix.cols, (expert + 1) * matrix.cols, 0,
                         matrix.rows};
    SLUICE_RETURN_IF_ERROR(
        ReadSliceAs(file_, names[0], slice, type, stored.data()));
    const auto row_of = [&](int64_t row) { return Row(matrix, row); };
    if (bf16) {
      Transpose(stored.as<uint16_t>(), matrix.cols, matrix.rows, row_of,
                weight.data.as<uint16_t>());
    } else {
      Transpose(stored.as<float>(), matrix.cols, matrix.rows, row_of,
                weight.data.as<float>());
    }
    return weight;
  }
  const auto rows = matrix.rows / static_cast<int64_t>(names.size());
  const int64_t first =
      storage_ == ExpertStorage::kStacked ? expert * matrix.rows : 0;
  std::byte* out = weight.data.data();
  for (const std::string& name : names) {
    SLUICE_RETURN_IF_ERROR(ReadSliceAs(
        file_, name, {first, first + rows, 0, matrix.cols}, type, out));
    out += BytesPerElement(type) * rows * matrix.cols;
  }
  return weight;
}

StatusOr<DeviceMemory> ExpertLoader::ReadBias(int32_t layer, ExpertRange range,
                                              const Matrix& matrix,
                                              Backend& backend) {
  const std::string name =
      Prefix(layer) +
      (matrix.is_gate_up ? "gate_up_proj_bias" : "down_proj_bias");
  const int64_t count = range.size() * matrix.rows;
  Buffer stored(sizeof(float) * count);
  Buffer sorted(sizeof(float) * count);
  SLUICE_RETURN_IF_ERROR(file_.ReadF32(
      name, {range.begin, range.end, 0, matrix.rows}, stored.as<float>()));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i % matrix.rows;
    sorted.as<float>()[i - row + Row(matrix, row)] = stored.as<float>()[i];
  }
  DeviceMemory bias = backend.Allocate(sorted.size());
  backend.CopyIn(sorted.as<float>(), {bias.data(), 1, count, count});
  return bias;
}

StatusOr<ExpertWeights> ExpertLoader::Load(int32_t layer, ExpertRange range,
                                           Backend& backend,
                                           const BytesRead& read) {
  ExpertWeights loaded;
  loaded.first = range.begin;
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : {GateUp(), Down()}) {
      SLUICE_ASSIGN_OR_RETURN(HostWeight weight, Read(layer, e, matrix));
      used_bf16_ |= weight.type == WeightType::kBf16;
      used_mxfp4_ |= weight.type == WeightType::kMxfp4;
      auto& to = matrix.is_gate_up ? loaded.gate_up : loaded.down;
      to.push_back(backend.Pack(std::move(weight)));
    }
    if (read) read(StoredBytes(layer, {e, e + 1}));
  }
  if (!config_.moe.expert_bias || range.size() == 0) return loaded;
  SLUICE_ASSIGN_OR_RETURN(loaded.gate_up_bias,
                          ReadBias(layer, range, GateUp(), backend));
  SLUICE_ASSIGN_OR_RETURN(loaded.down_bias,
                          ReadBias(layer, range, Down(), backend));
  return loaded;
}

}  // namespace sluice
