#ifndef SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_
#define SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "common/model/packed_weights.h"
#include "common/model/read_ahead.h"
#include "common/model_config/expert_range.h"
#include "common/model_config/tensor_table.h"
#include "common/model_config/weights_mode.h"
#include "common/tensor/host_weight.h"
#include "common/weights/model_file.h"

namespace sluice {

// Called with bytes just read.
using BytesRead = std::function<void(uint64_t bytes)>;

// Reads experts of one model and no other bytes, or maps what `packed` keeps
// of them, for a stage's rank or for a host of experts. The family's table
// names the tensors; matrices become what `mode` says, biases F32. Needs
// CheckTensors(config, file) to have passed; file, config and `packed` must
// outlive the loader. Used by one thread.
class ExpertLoader {
 public:
  ExpertLoader(const weights::ModelFile& file, const ModelConfig& config,
               WeightsMode mode, PackedWeights* packed);

  // Returns the stored bytes of these experts of `layer`, which must be sparse.
  uint64_t StoredBytes(int32_t layer, ExpertRange range) const;
  // Returns the bytes of their matrices and biases once they are loaded.
  uint64_t LoadedBytes(int32_t layer, ExpertRange range) const;
  // `read` may be empty. `whole`: the run that has `range` and whose packed
  // weights are on disk, where ranks share it.
  StatusOr<ExpertWeights> Load(int32_t layer, ExpertRange range,
                               Backend& backend, const BytesRead& read,
                               std::optional<ExpertRange> whole = {});

 private:
  // One of an expert's two matrices, [rows, cols] when loaded, and its bias.
  struct Matrix {
    WeightRows tensors;
    WeightRows bias;  // without rows: none
    int64_t rows;
    int64_t cols;
    bool interleaved;  // rows of gate and up alternate
    bool is_gate_up() const {
      return tensors.place == WeightPlace::kExpertGateUp;
    }
    // Returns the matrix's row for row `row` of a stored gate or up tensor.
    int64_t To(int64_t row) const {
      return interleaved ? row / 2 + row % 2 * (rows / 2) : row;
    }
  };
  // Gate and up, down.
  std::array<Matrix, 2> MatricesOf(int32_t layer) const;
  // Any thread may call it. `pool` may be null.
  StatusOr<HostWeight> Read(int32_t layer, int32_t expert, const Matrix& matrix,
                            BufferPool* pool) const;
  // Returns gate and up, down, gate and up, ... of the experts.
  StatusOr<PackedWeights::Weights> Pack(int32_t layer, ExpertRange range,
                                        Backend& backend,
                                        const BytesRead& read);
  // Returns the same of a run of one file, read, packed or copied out of all
  // that the file has.
  StatusOr<PackedWeights::Weights> LoadRun(int32_t layer, ExpertRange run,
                                           ExpertRange file, Backend& backend,
                                           const BytesRead& read);
  Status ReadTransposed(std::string_view from, int32_t expert,
                        const Matrix& matrix, HostWeight& to) const;
  // Returns the rows in the order of Matrix::To.
  static HostWeight Sorted(const Matrix& matrix, const HostWeight& from,
                           BufferPool* pool);
  // Returns none for a model without biases.
  StatusOr<DeviceMemory> ReadBias(int32_t layer, ExpertRange range,
                                  const Matrix& matrix, Backend& backend);

  const weights::ModelFile& file_;
  const ModelConfig& config_;
  const WeightsMode mode_;
  PackedWeights& packed_;
  const ExpertStorage storage_;
  // Of matrices that are packed into other memory.
  const std::shared_ptr<BufferPool> pool_ = BufferPool::Make(kReadAheadBytes);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_
