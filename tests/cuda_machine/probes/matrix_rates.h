#ifndef SLUICE_TESTS_CUDA_MACHINE_PROBES_MATRIX_RATES_H_
#define SLUICE_TESTS_CUDA_MACHINE_PROBES_MATRIX_RATES_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <vector>

namespace sluice::kernels::cuda {

// Products whose operands stay where matrix units read them, again and again:
// what a device's rate of products is measured with.

enum class MatrixUnits {
  kTiles,   // Block::MultiplyTile: BF16
  kCodes,   // Block::MultiplyCodes: bytes
  kGroups,  // GroupProducts: BF16
};

// What a warp multiplies, and of kGroups four warps together: A [64, k] by B
// [k, columns]. A thread has kRateResults sums.
struct RateShape {
  int k;
  int columns;
  int warps;    // that multiply together
  int threads;  // of a block
  int blocks;   // that a multiprocessor has at once
};
inline constexpr int kRateRows = 64;
inline constexpr int kRateResults = 64;
constexpr RateShape RateShapeOf(MatrixUnits units) {
  if (units == MatrixUnits::kTiles) return {16, 32, 1, 256, 2};
  if (units == MatrixUnits::kCodes) return {32, 32, 1, 256, 2};
  return {64, 128, 4, 128, 4};
}

// Operands: whole numbers of up to eight bits, so that units toggle as with
// weights, whose sums are exact in F32 in any order. The second half of k
// undoes the first one but for a small number of the row and the column: A B =
// (1 + row % 16) * RateElementB(0, column), below 2^8, so kMostRateTimes of
// them are below 2^23.
inline constexpr int32_t kMostRateTimes = 1 << 15;
constexpr int RateElementB(int k, int column, int half) {
  const int at = k % half;
  const int first = column % 15 + 1;
  const int value = at > 0
                        ? (at * 29 + column * 17 + at * column * 7) % 127 - 63
                        : (column % 2 == 0 ? first : -first);
  return k < half ? value : -value;
}
constexpr int RateElementA(int row, int k, int half) {
  const int at = k % half;
  const int value = 16 + (row * 37 + at * 83 + row * at * 11) % 240;
  return k == half ? value - 1 - row % 16 : value;
}
// An element of A B.
constexpr int RateSum(MatrixUnits units, int row, int column) {
  const int k = RateShapeOf(units).k;
  int sum = 0;
  for (int i = 0; i < k; ++i) {
    sum += RateElementA(row, i, k / 2) * RateElementB(i, column, k / 2);
  }
  return sum;
}
// The row and the column of a thread's result.
constexpr int RateRow(MatrixUnits units, int thread, int result) {
  const int own = thread % 32 / 4 + result % 4 / 2 * 8;
  return units == MatrixUnits::kGroups ? thread / 32 % 4 * 16 + own
                                       : result / 16 * 16 + own;
}
constexpr int RateColumn(MatrixUnits units, int thread, int result) {
  const int octet = units == MatrixUnits::kGroups ? result / 4 : result / 4 % 4;
  return octet * 8 + thread % 4 * 2 + result % 2;
}

// Whether a device has them; kGroups: and is asked for them.
bool HasMatrixUnits(MatrixUnits units, Stream stream);
// As many blocks as the device has room for.
int64_t RateBlocks(MatrixUnits units, Stream stream);
// Additions and multiplications of a block that multiplies `times` times.
double RateOperations(MatrixUnits units, int32_t times);

// A and B as RateMultiply reads them.
std::vector<uint32_t> RateOperands(MatrixUnits units);
// out [blocks, kRateResults, threads] = the sums of `times` A B, at most
// kMostRateTimes: bits of an F32, or an integer. `operands` are 16-byte
// aligned.
void RateMultiply(MatrixUnits units, Stream stream, const uint32_t* operands,
                  int64_t blocks, int32_t times, uint32_t* out);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_PROBES_MATRIX_RATES_H_
