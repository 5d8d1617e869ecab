#ifndef SLUICE_COMMON_WEIGHTS_DLLAMA_FILE_H_
#define SLUICE_COMMON_WEIGHTS_DLLAMA_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "common/weights/file.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

// The header of a model of distributed-llama (a .m file): pairs of integers.
// Its tensors follow without names, in an order that the architecture fixes.
// A value.
struct DllamaHeader {
  enum class Architecture : int32_t {
    kLlama = 0xABCD00,
    kQwen3 = 0xABCD01,
    kQwen3Moe = 0xABCD02
  };

  // dllama's defaults stand for absent keys.
  int32_t version = 0;
  int32_t architecture = 0;
  int32_t dim = 0;
  int32_t hidden_dim = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t num_experts = 0;
  int32_t num_active_experts = 0;
  int32_t vocab_size = 0;
  int32_t max_seq_len = 0;
  int32_t hidden_act = 1;  // SiLU
  int32_t rope_theta = 10000;
  int32_t weights = 0;  // their type, by dllama's number
  int32_t rope_factor = 1;
  int32_t rope_low_freq_factor = 0;
  int32_t rope_high_freq_factor = 0;
  int32_t rope_original_seq_len = 0;
  int32_t rope_type = 0;
  int32_t head_dim = 0;      // 0: dim / num_heads
  int32_t norm_epsilon = 5;  // 1e-5
  int32_t moe_hidden_dim = 0;

  uint64_t bytes = 0;  // of the header; the tensors begin there

  Architecture arch() const { return static_cast<Architecture>(architecture); }
  DType weights_type() const;
};

// rope_type of Llama 3's scaling; 0: none.
inline constexpr int32_t kDllamaRopeLlama3 = 2;

// Whether a file begins as a model of distributed-llama, of the old format too.
bool IsDllamaFile(const RandomAccessFile& file);

// Returns the bytes of the header. INVALID_ARGUMENT as ReadDllamaHeader, of
// which `bytes` is set by the reader alone.
StatusOr<std::string> DllamaHeaderBytes(const DllamaHeader& header);

// Returns dllama's number of a type of weights; nothing for another.
std::optional<int32_t> DllamaTypeOf(DType dtype);

// Reads and checks the header: magic, size, every key and its limits, what
// contradicts another key. INVALID_ARGUMENT names key, limit and value.
StatusOr<DllamaHeader> ReadDllamaHeader(const RandomAccessFile& file);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_DLLAMA_FILE_H_
