#ifndef SLUICE_KERNELS_BLOCK_PACK_H_
#define SLUICE_KERNELS_BLOCK_PACK_H_

#include <cstdint>

#include "kernels/block_format.h"

namespace sluice::kernels {

// Packed weights. Sixteen rows form a group; a group is a run of its blocks in
// rising k; a block of a group holds the stored bytes of its sixteen rows, in
// this order:
//   sixteen F16 scales, if the format has them; sixteen F16 minima, if any;
//   the bytes of integer scales: byte 0 of every row, byte 1 of every row ...;
//   the high bits of the codes, if any, then their low bits.
// Codes with b bits each fill vectors of 64 bytes: a vector has four
// consecutive elements of every row for 8 / b consecutive fours. Byte 4 * r +
// i of vector v holds, at bit b * j, element 4 * (v * 8 / b + j) + i of row r.
// Q8_0's codes are stored with 128 added.
//
// The layout is the same for every instruction set: a register of eight rows
// is half a vector, one of four a quarter. Packed rows have as many bytes as
// stored ones; rows behind the last one up to sixteen are blocks of zeros.

// The layout's name in files of packed weights. Another layout has another one.
inline constexpr char kPackedLayout[] = "rows16-2";

inline const BlockLayout& LayoutOf(BlockFormat format) {
  return kBlockLayouts[static_cast<int>(format)];
}
inline int64_t StoredRowBytes(BlockFormat format, int64_t cols) {
  const BlockLayout& layout = LayoutOf(format);
  return cols / layout.elements * layout.bytes;
}
inline int64_t PackedBytes(BlockFormat format, int64_t rows, int64_t cols) {
  return (rows + kGroupRows - 1) / kGroupRows * kGroupRows *
         StoredRowBytes(format, cols);
}

// A weight [rows, cols] in packed form; cols is a multiple of the format's
// elements per block, `packed` has PackedBytes, 64-byte aligned.
struct BlockWeight {
  BlockFormat format = BlockFormat::kQ8_0;
  const uint8_t* packed = nullptr;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
};

// Rows of stored blocks, `stride` bytes apart. A range of columns that begins
// and ends at blocks is such rows, too.
struct StoredRows {
  BlockFormat format = BlockFormat::kQ8_0;
  const uint8_t* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};

// Packs all rows to `packed`, PackedBytes(rows, cols). A matrix may be packed
// in pieces of whole groups: row r's group begins at PackedBytes(r, cols) for
// r a multiple of 16.
void PackRows(const StoredRows& from, uint8_t* packed);

// The inverse, for one row: its stored bytes.
void UnpackRow(const BlockWeight& w, int64_t row, uint8_t* stored);

// Elements [0, blocks * elements) of stored blocks as F32, with the roundings
// of the `gguf` Python package: scale times integer scale, times the code,
// plus or minus the minimum. MXFP4 is exact.
void WidenBlocks(BlockFormat format, const uint8_t* stored, int64_t blocks,
                 float* to);

// Row `row` as F32, as WidenBlocks.
void WidenRow(const BlockWeight& w, int64_t row, float* to);

// The F16 number at `from`, widened; the largest exponent stays as it is.
float F16At(const uint8_t* from);

// ORs the codes of a block's elements into a stored block whose bits of codes
// are 0. Q8_0's codes are signed bytes.
void StoreCodes(BlockFormat format, const uint8_t* codes, uint8_t* stored);

// The integer scale and minimum of a sub-block of a long block.
struct SubBlock {
  int scale;
  int minimum;
};
// ORs those of element k's sub-block into the block's bytes of integer scales,
// `subscales`, where its bits are 0.
void StoreSubBlock(BlockFormat format, int k, SubBlock sub, uint8_t* subscales);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_PACK_H_
