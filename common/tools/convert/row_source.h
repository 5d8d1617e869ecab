#ifndef SLUICE_COMMON_TOOLS_CONVERT_ROW_SOURCE_H_
#define SLUICE_COMMON_TOOLS_CONVERT_ROW_SOURCE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/buffer.h"
#include "common/weights/model_file.h"

namespace sluice {

// Where the rows of one matrix of a GGUF, or of one expert of a stacked one,
// are in a model.
struct RowSource {
  std::string name;
  weights::Slice slice;  // that has the rows
  // Elements of a row follow one another, else those of a column do.
  bool transposed = false;
  // Of the slice's rows (columns if transposed), in the GGUF's order.
  std::vector<int64_t> order;

  bool is_whole() const {
    return !transposed && std::is_sorted(order.begin(), order.end()) &&
           std::ssize(order) == slice.row_end - slice.row_begin;
  }
};

// Finds a GGUF's matrices and vectors among the tensors of a model, also those
// of a .m, which has a GGUF's rows. The config and the model must outlive it. A
// GGUF of the config's model_type must exist.
class RowFinder {
 public:
  RowFinder(const ModelConfig& config, const weights::ModelFile& model);

  // `row` is one of ExpertStorage::kApart.
  RowSource Find(const TensorRow& row, int32_t layer, int64_t expert) const;

 private:
  RowSource OfExpert(const TensorRow& row, int32_t layer, int64_t expert) const;
  // The tensor of the model that has the rows of kApart's `row`: gate and up
  // have one each, or share one.
  std::string NameInFolder(const TensorRow& row, int32_t layer,
                           int64_t expert) const;

  const ModelConfig& config_;
  const weights::ModelFile& model_;
  const ExpertStorage storage_;
  const bool permuted_;
};

// Reads rows in the order of their source. The model must outlive it.
class RowReader {
 public:
  explicit RowReader(const weights::ModelFile& model) : model_(model) {}

  // Whether ReadStored gives elements of `type`.
  bool IsStoredAs(const RowSource& source, weights::DType type) const;
  // Returns the rows with the bytes that they are stored in.
  StatusOr<Buffer> ReadStored(const RowSource& source) const;
  // Returns the rows as F32.
  StatusOr<Buffer> ReadWide(const RowSource& source) const;

 private:
  const weights::ModelFile& model_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_CONVERT_ROW_SOURCE_H_
