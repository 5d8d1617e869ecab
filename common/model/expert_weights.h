#ifndef SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_
#define SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "common/model_config/expert_range.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"

namespace sluice {

// Called with bytes just read.
using BytesRead = std::function<void(uint64_t bytes)>;

// Reads experts of one model and nothing else of it, for a stage's rank or
// for a host of experts. Weights in `mode`: kAuto keeps BF16, F32 and MXFP4
// (packed, as it is stored) and takes other types to F32. CheckTensors(config,
// file) has passed; file and config must outlive it. Used by one thread.
class ExpertLoader {
 public:
  ExpertLoader(const weights::ModelFile& file, const ModelConfig& config,
               WeightsMode mode);

  // Stored bytes of these experts of `layer`, which is sparse.
  uint64_t StoredBytes(int32_t layer, ExpertRange range) const;
  // What Load gives of them takes so much memory, biases included.
  uint64_t HeldBytes(int32_t layer, ExpertRange range) const;
  // `read` may be empty.
  StatusOr<ExpertWeights> Load(int32_t layer, ExpertRange range,
                               Backend& backend, const BytesRead& read);
  // As if these experts of `layer` had been loaded, without reading them: for
  // used_bf16 and used_mxfp4 where others hold them.
  void NoteUsed(int32_t layer, ExpertRange range);
  // Whether any weight loaded so far is kept in BF16; in MXFP4.
  bool used_bf16() const { return used_bf16_; }
  bool used_mxfp4() const { return used_mxfp4_; }

 private:
  // One of an expert's two matrices, [rows, cols] when loaded.
  struct Matrix {
    bool is_gate_up;
    int64_t rows;
    int64_t cols;
  };
  Matrix GateUp() const;
  Matrix Down() const;
  std::string Prefix(int32_t layer) const;
  std::vector<std::string> NamesOf(int32_t layer, int32_t expert,
                                   const Matrix& matrix) const;
  // Where row `row` of a stored tensor goes: gate and up part.
  int64_t Row(const Matrix& matrix, int64_t row) const;
  // What Read gives.
  kernels::WeightType TypeOf(int32_t layer, int32_t expert,
                             const Matrix& matrix) const;
  StatusOr<HostWeight> Read(int32_t layer, int32_t expert,
                            const Matrix& matrix);
  StatusOr<HostWeight> ReadPacked(int32_t layer, int32_t expert,
                                  const Matrix& matrix);
  StatusOr<DeviceMemory> ReadBias(int32_t layer, ExpertRange range,
                                  const Matrix& matrix, Backend& backend);

  const weights::ModelFile& file_;
  const ModelConfig& config_;
  const WeightsMode mode_;
  const ExpertStorage storage_;
  bool used_bf16_ = false;
  bool used_mxfp4_ = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_EXPERT_WEIGHTS_H_
