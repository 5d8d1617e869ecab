#ifndef SLUICE_TESTS_KERNELS_BLOCK_REFERENCE_H_
#define SLUICE_TESTS_KERNELS_BLOCK_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/block_format.h"

// The arithmetic of kernels/block_matmul.h and the meaning of stored blocks,
// written out element by element and apart from the kernels.
namespace sluice::kernels {

std::vector<BlockFormat> AllBlockFormats();
// All, or where OnlyRepresentative() one of each layout: a scale, a minimum
// too, scales of parts with minima and without, codes that a table reads.
std::vector<BlockFormat> TestedBlockFormats();
std::string NameOf(BlockFormat format);
// Elements and bytes of a stored block.
int64_t BlockElements(BlockFormat format);
int64_t BlockBytes(BlockFormat format);

// A stored block as numbers: element k is scale * sub_scale[k / 16] * code[k]
// + minimum * sub_minimum[k / 16].
struct BlockNumbers {
  float scale = 0;
  float minimum = 0;
  bool has_minima = false;
  int code[256] = {};
  int sub_scale[16] = {1, 1};
  int sub_minimum[16] = {1, 1};
};
BlockNumbers ReadBlock(BlockFormat format, const uint8_t* block);

// Stored rows [rows, cols] of random bytes with scales around 2^-8. Where a
// row has more than two blocks, all bits of codes and integer scales are 0 in
// the last one and 1 in the one before.
std::vector<uint8_t> RandomBlockRows(BlockFormat format, uint64_t seed,
                                     int64_t rows, int64_t cols);

// A row of activations as numbers.
struct ReferenceActivations {
  std::vector<int> codes;
  std::vector<float> scales;  // one per block
  bool finite = true;
};
ReferenceActivations QuantizeReference(const std::vector<float>& x,
                                       int64_t block);

// "q8-canonical-1" over blocks [begin, end) of a stored row.
float CanonicalBlockDot(BlockFormat format, const uint8_t* row,
                        const ReferenceActivations& x, int64_t begin,
                        int64_t end);

// The stored row's elements in double.
std::vector<double> BlockValues(BlockFormat format, const uint8_t* row,
                                int64_t cols);

}  // namespace sluice::kernels

#endif  // SLUICE_TESTS_KERNELS_BLOCK_REFERENCE_H_
