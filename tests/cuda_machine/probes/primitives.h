#ifndef SLUICE_TESTS_CUDA_MACHINE_PROBES_PRIMITIVES_H_
#define SLUICE_TESTS_CUDA_MACHINE_PROBES_PRIMITIVES_H_

#include <cuda_device/device.h>

#include <cstdint>

namespace sluice::kernels::cuda {

// What cuda_device/*.h hide behind names, a kernel per kind, for a test that
// holds a GPU and the machine that stands for one against the same numbers. No
// product of Sluice calls them.

// A kernel is a block of so many threads, four warps; each thread stores as
// many words as below, one after the other.
inline constexpr int kPrimitiveThreads = 128;
inline constexpr int kWordResults = 15;
inline constexpr int kLaneResults = 10;
inline constexpr int kTileResults = 12;
inline constexpr int kCopyResults = 12;
inline constexpr int kGateUses = 3;
inline constexpr int kGroupResults = 64;

// All read `in`, 16-byte aligned: kPrimitiveWords of any bits, as many that are
// finite floats, and as many that are pairs of finite BF16 numbers.
inline constexpr int kPrimitiveWords = 1024;

void StartWords(Stream stream, const uint32_t* in, uint32_t* out);
void StartLanes(Stream stream, const uint32_t* in, uint32_t* out);
void StartTiles(Stream stream, const uint32_t* in, uint32_t* out);
void StartCopies(Stream stream, const uint32_t* in, uint32_t* out);
// Whether a device has these two. StartGroups reads its operand B,
// kPrimitiveWords as GroupProducts has them, from `in`.
bool HasGroups(Stream stream);
void StartGates(Stream stream, const uint32_t* in, uint32_t* out);
void StartGroups(Stream stream, const uint32_t* in, uint32_t* out);

// Blocks that each hand a word of a warp's lanes to the last one, which adds
// them: out[0 .. 31]; `arrived` is 0, and is 0 again.
inline constexpr int kArrivingBlocks = 64;
void StartArrivals(Stream stream, const uint32_t* in, uint32_t* words,
                   uint32_t* out, uint32_t* arrived);

// Operands of tiles: small whole numbers, so that every sum is exact. Rows and
// columns of A [64, 16] and B [16, 128]; codes of [64, 32] and [32, 8].
constexpr int TileElementA(int row, int k) {
  return (row * 3 + k * 5) % 17 - 8;
}
constexpr int TileElementB(int k, int column) {
  return (k * 7 + column * 3) % 13 - 6;
}
constexpr int CodeElementA(int row, int k) { return (row * 37 + k * k) % 256; }
constexpr int CodeElementB(int k, int column) {
  return (k * 29 + column * 50) % 256 - 128;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_PROBES_PRIMITIVES_H_
