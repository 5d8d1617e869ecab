#ifndef SLUICE_TESTS_GPU_ROW_BITS_H_
#define SLUICE_TESTS_GPU_ROW_BITS_H_

#include "common/base/json.h"
#include "common/device/backend.h"

namespace sluice::testing {

// Whether rows of products of many tokens with BF16 weights have the bits that
// they have alone: whatever instructions multiply them sum in one order. Values
// are of many magnitudes, and pairs of them cancel. Adds an entry per shape and
// number of tokens to `to`.
bool RowsHaveTheirOwnBits(Backend& backend, Json& to);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_ROW_BITS_H_
