#ifndef SLUICE_COMMON_WEIGHTS_CHECKED_READER_H_
#define SLUICE_COMMON_WEIGHTS_CHECKED_READER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_contents.h"

namespace sluice::weights {

// The checksums of one tensor's stored bytes, piece by piece, and the checked
// pieces. Any thread may read with them.
struct PieceSums {
  std::string path;  // of the file of sums
  std::vector<uint64_t> pieces;
  std::unique_ptr<std::atomic<bool>[]> checked;
};

// Reads stored bytes of one tensor. With sums, the first read that meets a
// piece reads the whole piece and checks it, so every returned byte is from a
// checked piece, for any cut of a tensor into reads. Tensor and sums must
// outlive it; one thread.
class CheckedReader {
 public:
  // `sums` may be null.
  CheckedReader(const LocatedTensor& tensor, const PieceSums* sums,
                OutlineReads outlines)
      : tensor_(tensor), sums_(sums), outlines_(outlines) {}

  // Fills `out` with the `size` bytes at `offset` of the tensor. DATA_LOSS
  // names the file and both sums for a piece that differs.
  Status Read(uint64_t offset, size_t size, uint8_t* out);

 private:
  Status ReadPiece(uint64_t begin, size_t size, uint8_t* out) const;
  Status Repeat(uint64_t offset, size_t size, uint8_t* out);

  const LocatedTensor& tensor_;
  const PieceSums* const sums_;
  const OutlineReads outlines_;
  std::string beginning_;             // of an outline that is repeated
  std::unique_ptr<uint8_t[]> piece_;  // for a piece that is read in part
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_CHECKED_READER_H_
