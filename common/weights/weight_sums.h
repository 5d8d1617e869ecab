#ifndef SLUICE_COMMON_WEIGHTS_WEIGHT_SUMS_H_
#define SLUICE_COMMON_WEIGHTS_WEIGHT_SUMS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_file.h"

// Checksums of a model's tensors, kept beside it: "sluice.sums" in a model
// folder, FILE.sluice.sums beside a GGUF FILE (of a split set: its first).
//
//   {"format": "sluice sums 1", "model": "<digest, 64 digits>",
//    "hash": "xxh64", "piece_bytes": 1048576, "tensors": [
//     {"name": "model.norm.weight", "file": "model.safetensors",
//      "bytes": 2304, "sum": "<16 digits>", "pieces": "<16 digits each>"},
//     ...]}
//
// A tensor's bytes, as they are stored and in the file's order, are cut into
// pieces of 1 MiB, the last is shorter; each has its XXH64. The tensor's own
// sum is the XXH64 of the pieces' sums, each as 8 bytes, lowest first. So a
// stage that reads some rows checks the pieces that it reads of, whatever the
// stages and ranks, and sums outlive a new cut into shards.
namespace sluice::weights {

inline constexpr uint64_t kSumPieceBytes = uint64_t{1} << 20;

struct TensorSums {
  std::string name;
  std::string file;  // its name without a path, for people
  uint64_t bytes = 0;
  std::vector<uint64_t> pieces;
  uint64_t sum() const;  // of the pieces' sums
  bool operator==(const TensorSums&) const = default;
};

struct WeightSums {
  std::string model;                // ModelDigest::Hex
  std::vector<TensorSums> tensors;  // sorted by name
  bool operator==(const WeightSums&) const = default;
};

// 16 hexadecimal digits.
std::string SumToHex(uint64_t sum);

std::string ToText(const WeightSums& sums);
// INVALID_ARGUMENT names what is wrong in the text.
StatusOr<WeightSums> ParseWeightSums(std::string_view text);

// Returns the SHA-256 of ToText(sums), as 64 hexadecimal digits.
std::string DigestOf(const WeightSums& sums);

// Reads all of `model`, whose digest is `digest`. `progress` is called with
// bytes done and in all; it may be empty.
StatusOr<WeightSums> ComputeWeightSums(
    const ModelFile& model, const ModelDigest& digest,
    const std::function<void(uint64_t done, uint64_t total)>& progress = {});

// Writes them to model.sums_path(): all of the file or nothing.
Status WriteWeightSums(const ModelFile& model, const WeightSums& sums);

// Checks what is read of `model` from now on against the sums beside it, if
// there are any, and logs which of the two it is. INVALID_ARGUMENT for sums of
// another model, DATA_LOSS for a model that is damaged where its digest
// `digest` is taken.
Status UseWeightSums(ModelFile& model, const ModelDigest& digest);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_WEIGHT_SUMS_H_
