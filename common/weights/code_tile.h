#ifndef SLUICE_COMMON_WEIGHTS_CODE_TILE_H_
#define SLUICE_COMMON_WEIGHTS_CODE_TILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

// Some rows and columns of a composed tensor: each code in a byte, the scales
// and zero points. Every layout but MXFP4's. Rows and columns count from those
// of the slice.
class CodeTile {
 public:
  CodeTile(const ModelFile& model, const ComposedTensor& tensor,
           const Slice& slice);

  Status Read();

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  const uint8_t* row(int64_t row) const { return codes_.get() + row * cols_; }
  // Of an element; I8 codes have 128 added, as their zero points have.
  float scale(int64_t row, int64_t col) const {
    return scales_[At(row, GroupOf(col))];
  }
  int zero(int64_t row, int64_t col) const {
    return zeros_[At(row, GroupOf(col))];
  }

 private:
  size_t At(int64_t row, int64_t group) const {
    const int64_t of = (slice_.row_begin + row) / tensor_.scale_rows -
                       slice_.row_begin / tensor_.scale_rows;
    return static_cast<size_t>(of * num_groups_ + group);
  }
  int64_t GroupOf(int64_t col) const {
    return groups_.empty()
               ? (slice_.col_begin + col) / tensor_.scale_cols
               : groups_[static_cast<size_t>(slice_.col_begin + col)];
  }
  uint8_t* MutableRow(int64_t row) { return codes_.get() + row * cols_; }
  uint8_t CodeOf(uint32_t word, int place) const {
    return static_cast<uint8_t>(word >> (place * tensor_.bits) &
                                ((1u << tensor_.bits) - 1));
  }
  bool in_columns() const {
    return tensor_.layout == CodeLayout::kGptq ||
           tensor_.layout == CodeLayout::kAwq;
  }
  // Rows of scales that the slice's rows have.
  int64_t scale_rows() const;

  Status ReadCodes();
  // Words of n columns, row by row.
  Status ReadPacked();
  // Two codes in a byte, row by row.
  Status ReadNibbles();
  // Words in which a column of the matrix is a run, some columns at a time.
  Status ReadColumns();
  void TakeAwq(const uint32_t* strip, int64_t col, int64_t count,
               int64_t first_word, int64_t words);
  void TakeGptq(const uint32_t* strip, int64_t line, int64_t count);
  // scales_[row][group].
  Status ReadScales();
  // Those of rows, and what the matrix's number makes of them.
  Status ReadScaleRows(int64_t begin, int64_t rows);
  // zeros_[row][group].
  Status ReadZeros();
  Status ReadGroups();
  Status ReadBytes(const std::string& name, int64_t offset, int64_t size,
                   uint8_t* out) const;

  const ModelFile& model_;
  const ComposedTensor& tensor_;
  const Slice slice_;
  const int64_t rows_;
  const int64_t cols_;
  const int64_t num_groups_;
  std::unique_ptr<uint8_t[]> codes_;  // [rows_, cols_]
  std::vector<float> scales_;         // [rows of scales, groups]
  std::vector<int16_t> zeros_;        // the same
  std::vector<int32_t> groups_;       // of all columns; empty: in order
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_CODE_TILE_H_
