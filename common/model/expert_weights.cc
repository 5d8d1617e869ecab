#include "common/model/expert_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/base/cat.h"
#include "common/model/cut_weights.h"
#include "kernels/block_store.h"

namespace sluice {
namespace {

using kernels::WeightType;

// Of a layer, at most in one file of packed weights: what several ranks read at
// once.
constexpr int32_t kExpertsOfFile = 16;

// to[c][r] = from[r][c]; from [rows, cols].
template <typename T>
void Transpose(const T* from, int64_t rows, int64_t cols, T* to) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * cols + c];
  }
}

}  // namespace

ExpertLoader::ExpertLoader(const weights::ModelFile& file,
                           const ModelConfig& config, WeightsMode mode,
                           PackedWeights* packed)
    : file_(file),
      config_(config),
      mode_(mode),
      packed_(*packed),
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
            (moe.activation.gated ? 2 : 1) * size, hidden,
            moe.interleaved && storage_ != ExpertStorage::kApart},
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
        const uint64_t stored = file_.StoredBytes(NameOf(*row, layer, e));
        bytes += row->per_expert() ? stored : stored / experts;
      }
    }
  }
  return bytes;
}

uint64_t ExpertLoader::LoadedBytes(int32_t layer, ExpertRange range) const {
  uint64_t bytes = 0;
  const auto matrices = MatricesOf(layer);
  for (int32_t e = range.begin; e < range.end; ++e) {
    for (const Matrix& matrix : matrices) {
      const auto type = TypesOf(matrix.tensors, layer, file_, mode_, e)[0];
      bytes += FormatOf(type).bytes(matrix.rows * matrix.cols);
      if (matrix.bias.rows.empty()) continue;
      bytes += static_cast<uint64_t>(matrix.rows) * sizeof(float);
    }
  }
  return bytes;
}

Status ExpertLoader::ReadTransposed(std::string_view from, int32_t expert,
                                    const Matrix& matrix,
                                    HostWeight& to) const {
  // Blocks are made from rows in the order of the computation.
  if (IsFp8(to.type)) {
    return InvalidArgument("tensor '", from,
                           "': FP8 weights cannot stand transposed");
  }
  const bool plain = FormatOf(to.type).is_plain();
  HostWeight stored(plain ? to.type : WeightType::kF32, matrix.cols,
                    matrix.rows);
  SLUICE_RETURN_IF_ERROR(file_.ReadMatrix(
      from, {expert * matrix.cols, (expert + 1) * matrix.cols, 0, matrix.rows},
      0, stored));
  if (to.type == WeightType::kBf16) {
    Transpose(stored.data.as<uint16_t>(), matrix.cols, matrix.rows,
              to.data.as<uint16_t>());
  } else if (plain) {
    Transpose(stored.data.as<float>(), matrix.cols, matrix.rows,
              to.data.as<float>());
  } else {
    HostWeight wide(WeightType::kF32, matrix.rows, matrix.cols);
    Transpose(stored.data.as<float>(), matrix.cols, matrix.rows,
              wide.data.as<float>());
    kernels::StoreBlocks(BlockFormatOf(to.type), wide.data.as<float>(),
                         matrix.rows * matrix.cols / kernels::kShortBlock,
                         to.data.as<uint8_t>());
  }
  return OkStatus();
}

StatusOr<HostWeight> ExpertLoader::Read(int32_t layer, int32_t expert,
                                        const Matrix& matrix,
                                        BufferPool* pool) const {
  const WeightRows& tensors = matrix.tensors;
  HostWeight weight(TypesOf(tensors, layer, file_, mode_, expert)[0],
                    matrix.rows, matrix.cols, pool);
  const int64_t rows = matrix.rows / static_cast<int64_t>(tensors.rows.size());
  const int64_t first = tensors.first().per_expert() ? 0 : expert * rows;
  for (size_t part = 0; part < tensors.rows.size(); ++part) {
    const std::string from = NameOf(*tensors.rows[part], layer, expert);
    SLUICE_RETURN_IF_ERROR(
        storage_ == ExpertStorage::kTransposed
            ? ReadTransposed(from, expert, matrix, weight)
            : file_.ReadMatrix(from, {first, first + rows, 0, matrix.cols},
                               static_cast<int64_t>(part) * rows, weight));
  }
  if (!matrix.interleaved) return weight;
  return Sorted(matrix, weight, pool);
}

HostWeight ExpertLoader::Sorted(const Matrix& matrix, const HostWeight& from,
                                BufferPool* pool) {
  HostWeight to(from.type, from.rows, from.cols, pool);
  const size_t bytes = FormatOf(from.type).bytes(from.cols);
  for (int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(to.data.data() + matrix.To(row) * bytes,
                from.data.data() + row * bytes, bytes);
  }
  return to;
}

StatusOr<DeviceMemory> ExpertLoader::ReadBias(int32_t layer, ExpertRange range,
                                              const Matrix& matrix,
                                              Backend& backend) {
  if (matrix.bias.rows.empty() || range.size() == 0) return DeviceMemory();
  const auto parts = static_cast<int64_t>(matrix.bias.rows.size());
  const int64_t rows = matrix.rows / parts;
  const int64_t count = range.size() * matrix.rows;
  Buffer stored(sizeof(float) * range.size() * rows);
  Buffer sorted(sizeof(float) * count);
  for (int64_t part = 0; part < parts; ++part) {
    SLUICE_RETURN_IF_ERROR(file_.ReadF32(NameOf(*matrix.bias.rows[part], layer),
                                         {range.begin, range.end, 0, rows},
                                         stored.as<float>()));
    for (int64_t i = 0; i < range.size() * rows; ++i) {
      const int64_t row = matrix.To(part * rows + i % rows);
      sorted.as<float>()[i / rows * matrix.rows + row] = stored.as<float>()[i];
    }
  }
  DeviceMemory bias = backend.Allocate(sorted.size());
  backend.CopyIn(sorted.as<float>(), {bias.data(), 1, count, count});
  return bias;
}

StatusOr<PackedWeights::Weights> ExpertLoader::Pack(int32_t layer,
                                                    ExpertRange range,
                                                    Backend& backend,
                                                    const BytesRead& read) {
  PackedWeights::Weights made;
  const auto matrices = MatricesOf(layer);
  const ReadAheadOptions options = ReadAheadFor(backend.info());
  BufferPool* const pool = options.threads > 0 ? pool_.get() : nullptr;
  // Gate and up, down, ...: those that are read and not packed yet.
  std::vector<HostWeight> weights(matrices.size() *
                                  static_cast<size_t>(range.size()));
  std::vector<AheadRead> reads;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Matrix& matrix = matrices[i % matrices.size()];
    const auto e = range.begin + static_cast<int32_t>(i / matrices.size());
    AheadRead& ahead = reads.emplace_back();
    const auto type = TypesOf(matrix.tensors, layer, file_, mode_, e)[0];
    ahead.bytes = FormatOf(type).bytes(matrix.rows * matrix.cols);
    ahead.parts = 1;
    HostWeight& weight = weights[i];
    ahead.read = [this, layer, e, pool, &matrix, &weight](int64_t) -> Status {
      SLUICE_ASSIGN_OR_RETURN(weight, Read(layer, e, matrix, pool));
      return OkStatus();
    };
    ahead.take = [&, e]() -> Status {
      std::vector<HostWeight> parts;
      parts.push_back(std::move(weight));
      made.push_back(backend.Pack(std::move(parts)));
      const bool is_last = made.size() % matrices.size() == 0;
      if (is_last && read) read(StoredBytes(layer, {e, e + 1}));
      return OkStatus();
    };
  }
  SLUICE_RETURN_IF_ERROR(ReadAhead(reads, options));
  return made;
}

StatusOr<PackedWeights::Weights> ExpertLoader::LoadRun(int32_t layer,
                                                       ExpertRange run,
                                                       ExpertRange file,
                                                       Backend& backend,
                                                       const BytesRead& read) {
  const bool is_cut = run != file && packed_.SharesWhole(backend);
  const ExpertRange kept = is_cut ? file : run;
  // The model's files and the mode say what types the matrices have.
  const std::string name =
      Cat("experts-", layer, "-", kept.begin, "-", kept.end - 1);
  const PackedWeights::Group group = {name,
                                      Cat(name, " ", ToString(mode_), "\n")};
  bool tells = true;
  const auto pack = [&] {
    tells = is_cut;
    return Pack(layer, kept, backend, is_cut ? BytesRead() : read);
  };
  PackedWeights::Weights weights;
  if (is_cut) {
    SLUICE_ASSIGN_OR_RETURN(const auto all,
                            packed_.Whole(group, backend, pack));
    const size_t each = all->size() / static_cast<size_t>(kept.size());
    const size_t first = each * static_cast<size_t>(run.begin - kept.begin);
    for (size_t i = 0; i < each * static_cast<size_t>(run.size()); ++i) {
      const Weight& from = *(*all)[first + i];
      const WeightCut cut = {0, 0, from.rows, 0, from.cols};
      weights.push_back(CutWeight(from, {&cut, 1}, backend, packed_.context()));
      weights.back()->memory = packed_.Marks();
    }
  } else {
    SLUICE_ASSIGN_OR_RETURN(weights, packed_.Load(group, backend, pack));
  }
  if (tells && read) read(StoredBytes(layer, run));
  return weights;
}

StatusOr<ExpertWeights> ExpertLoader::Load(int32_t layer, ExpertRange range,
                                           Backend& backend,
                                           const BytesRead& read,
                                           std::optional<ExpertRange> whole) {
  ExpertWeights loaded;
  loaded.first = range.begin;
  const auto matrices = MatricesOf(layer);
  PackedWeights::Weights weights;
  for (int32_t begin = range.begin, end = 0; begin < range.end; begin = end) {
    const ExpertRange all = whole.value_or(range);
    const int32_t first = begin / kExpertsOfFile * kExpertsOfFile;
    const ExpertRange file = {std::max(first, all.begin),
                              std::min(first + kExpertsOfFile, all.end)};
    end = std::min(file.end, range.end);
    SLUICE_ASSIGN_OR_RETURN(auto run,
                            LoadRun(layer, {begin, end}, file, backend, read));
    std::ranges::move(run, std::back_inserter(weights));
  }
  for (size_t i = 0; i < weights.size(); i += matrices.size()) {
    loaded.gate_up.push_back(std::move(weights[i]));
    loaded.down.push_back(std::move(weights[i + 1]));
  }
  SLUICE_ASSIGN_OR_RETURN(loaded.gate_up_bias,
                          ReadBias(layer, range, matrices[0], backend));
  SLUICE_ASSIGN_OR_RETURN(loaded.down_bias,
                          ReadBias(layer, range, matrices[1], backend));
  return loaded;
}

}  // namespace sluice
