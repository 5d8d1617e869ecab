#ifndef SLUICE_TESTS_DEVICE_CUDA_ROW_BITS_H_
#define SLUICE_TESTS_DEVICE_CUDA_ROW_BITS_H_

#include <cstdint>
#include <vector>

#include "common/base/json.h"
#include "common/device/backend.h"
#include "kernels/weight_type.h"

namespace sluice::testing {

struct RowBitsSizes {
  // Every one is compared: the first rows of a step of so many tokens with the
  // same rows alone.
  std::vector<int64_t> tokens;
  std::vector<int64_t> plain_cols;  // of weights in BF16
  std::vector<int64_t> block_cols;  // of the others: multiples of 256
  int64_t rows = 200;
  int32_t experts = 8;
  std::vector<kernels::WeightType> types;  // none twice
};

// What a GPU computes in some seconds.
RowBitsSizes LargeRowBits();

// Whether rows of steps of many tokens have the bits that they have alone:
// whatever kernels and instructions multiply them sum in one order. Products
// with weights of every type and gated ones, without a norm and behind one, and
// a norm with its router and the experts that it chooses. Activations are of
// many magnitudes, and pairs of them cancel. Adds an entry per operation, shape
// and number of tokens to `to`.
bool RowsHaveTheirOwnBits(Backend& backend, const RowBitsSizes& sizes,
                          Json& to);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_ROW_BITS_H_
