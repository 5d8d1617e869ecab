#include "common/model/expert_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/weights/dequantize.h"

namespace sluice {
namespace {

using kernels::WeightType;
using weights::Slice;
using weights::TensorInfo;

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

std::array<ExpertLoader::Matrix, 2> ExpertLoader::MatricesOf(
    int32_t layer) const {
  const auto all = WeightsOf(config_, layer, storage_);
  const auto at = [&](WeightPlace place) {
    const auto found = std::find_if(
        all.begin(), all.end(),
        [&](const WeightRows& weight) { return weight.place == place; });
    return found != all.end() ? *found : WeightRows{place, {}};
  };
  const MoeConfig& moe = config_.layers[layer].moe;
  const int64_t size = moe.intermediate_size;
  const int64_t hidden = config_.hidden_size;
  return {{{at(WeightPlace::kExpertGateUp), at(WeightPlace::kExpertGateUpBias),
            2 * size, hidden, moe.interleaved},
           {at(WeightPlace::kExpertDown), at(WeightPlace::kExpertDownBias),
            hidden, size, false}}};
}

uint64_t ExpertLoader::StoredBytes(int32_t layer, ExpertRange range) const {
  uint64_t bytes = 0;
  const auto matrices = MatricesOf(layer);
  const uint64_t experts = config_.layers[layer].moe.num_experts;
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : matrices) {
      for (const TensorRow* row : matrix.tensors.rows) {
        const auto stored = static_cast<uint64_t>(
            file_.Find(NameOf(*row, layer, e))->stored_bytes());
        bytes += row->per_expert() ? stored : stored / experts;
      }
    }
  }
  return bytes;
}

StatusOr<HostWeight> ExpertLoader::ReadPacked(int32_t layer, int32_t expert,
                                              const Matrix& matrix) {
  const WeightFormat& format = FormatOf(WeightType::kMxfp4);
  const int64_t groups = matrix.cols / format.block_elements;  // per row
  const size_t code_bytes = format.data_bytes(matrix.cols);    // per row
  const size_t scale_bytes = format.scales_bytes(matrix.cols);
  const int64_t all = matrix.rows * groups;
  HostWeight stored(WeightType::kMxfp4, matrix.rows, matrix.cols);
  SLUICE_RETURN_IF_ERROR(file_.ReadStored(Name(matrix, 0, layer, expert),
                                          expert * all, (expert + 1) * all,
                                          stored.data.as<uint8_t>()));
  SLUICE_RETURN_IF_ERROR(file_.ReadStored(
      Name(matrix, 1, layer, expert), expert * matrix.rows,
      (expert + 1) * matrix.rows, stored.scales.as<uint8_t>()));
  HostWeight weight(WeightType::kMxfp4, matrix.rows, matrix.cols);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const int64_t to = matrix.To(row);
    std::memcpy(weight.data.data() + to * code_bytes,
                stored.data.data() + row * code_bytes, code_bytes);
    std::memcpy(weight.scales.data() + to * scale_bytes,
                stored.scales.data() + row * scale_bytes, scale_bytes);
  }
  if (mode_ == WeightsMode::kAuto) return weight;
  HostWeight wide(WeightType::kF32, matrix.rows, matrix.cols);
  weights::DequantizeMxfp4(weight.data.as<uint8_t>(),
                           weight.scales.as<uint8_t>(), all,
                           wide.data.as<float>());
  if (mode_ == WeightsMode::kF32) return wide;
  HostWeight narrow(WeightType::kBf16, matrix.rows, matrix.cols);
  std::transform(wide.data.as<float>(),
                 wide.data.as<float>() + matrix.rows * matrix.cols,
                 narrow.data.as<uint16_t>(), weights::F32ToBf16);
  return narrow;
}

void ExpertLoader::NoteUsed(int32_t layer, ExpertRange range) {
  const auto matrices = MatricesOf(layer);
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : matrices) {
      formats_.Add(TypeOf(matrix.tensors, layer, file_, mode_, e));
    }
  }
}

Status ExpertLoader::ReadTransposed(const std::string& name, int32_t expert,
                                    const Matrix& matrix, HostWeight& to) {
  Buffer stored(to.data.size());
  const Slice slice = {expert * matrix.cols, (expert + 1) * matrix.cols, 0,
                       matrix.rows};
  SLUICE_RETURN_IF_ERROR(file_.ReadAs(name, slice, to.type, stored.data()));
  const auto row_of = [&](int64_t row) { return matrix.To(row); };
  if (to.type == WeightType::kBf16) {
    Transpose(stored.as<uint16_t>(), matrix.cols, matrix.rows, row_of,
              to.data.as<uint16_t>());
  } else {
    Transpose(stored.as<float>(), matrix.cols, matrix.rows, row_of,
              to.data.as<float>());
  }
  return OkStatus();
}

StatusOr<HostWeight> ExpertLoader::Read(int32_t layer, int32_t expert,
                                        const Matrix& matrix) {
  if (storage_ == ExpertStorage::kMxfp4) {
    return ReadPacked(layer, expert, matrix);
  }
  const WeightType type = TypeOf(matrix.tensors, layer, file_, mode_, expert);
  HostWeight weight(type, matrix.rows, matrix.cols);
  if (storage_ == ExpertStorage::kTransposed) {
    SLUICE_RETURN_IF_ERROR(
        ReadTransposed(Name(matrix, 0, layer, expert), expert, matrix, weight));
    return weight;
  }
  const size_t parts = matrix.tensors.rows.size();
  const int64_t rows = matrix.rows / static_cast<int64_t>(parts);
  const bool stacked = !matrix.tensors.first().per_expert();
  const int64_t first = stacked ? expert * rows : 0;
  std::byte* out = weight.data.data();
  for (size_t part = 0; part < parts; ++part) {
    SLUICE_RETURN_IF_ERROR(file_.ReadAs(Name(matrix, part, layer, expert),
                                        {first, first + rows, 0, matrix.cols},
                                        type, out));
    out += FormatOf(type).bytes(rows * matrix.cols);
  }
  return weight;
}

StatusOr<DeviceMemory> ExpertLoader::ReadBias(int32_t layer, ExpertRange range,
                                              const Matrix& matrix,
                                              Backend& backend) {
  if (matrix.bias.rows.empty() || range.size() == 0) return DeviceMemory();
  const std::string name = NameOf(matrix.bias.first(), layer);
  const int64_t count = range.size() * matrix.rows;
  Buffer stored(sizeof(float) * count);
  Buffer sorted(sizeof(float) * count);
  SLUICE_RETURN_IF_ERROR(file_.ReadF32(
      name, {range.begin, range.end, 0, matrix.rows}, stored.as<float>()));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i % matrix.rows;
    sorted.as<float>()[i - row + matrix.To(row)] = stored.as<float>()[i];
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
  const auto matrices = MatricesOf(layer);
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : matrices) {
      SLUICE_ASSIGN_OR_RETURN(HostWeight weight, Read(layer, e, matrix));
      formats_.Add(weight.type);
      auto& to = matrix.is_gate_up() ? loaded.gate_up : loaded.down;
      to.push_back(backend.Pack(std::move(weight)));
    }
    if (read) read(StoredBytes(layer, {e, e + 1}));
  }
  SLUICE_ASSIGN_OR_RETURN(loaded.gate_up_bias,
                          ReadBias(layer, range, matrices[0], backend));
  SLUICE_ASSIGN_OR_RETURN(loaded.down_bias,
                          ReadBias(layer, range, matrices[1], backend));
  return loaded;
}

}  // namespace sluice
