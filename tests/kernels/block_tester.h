#ifndef SLUICE_TESTS_KERNELS_BLOCK_TESTER_H_
#define SLUICE_TESTS_KERNELS_BLOCK_TESTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/block_matmul.h"
#include "kernels/block_pack.h"

namespace sluice::kernels {

// An instruction set's functions for products of quantised weights.
struct DotSet {
  std::string name;
  const cpu::BlockOps* ops;
};

// Those of this machine, the scalar one, and AVX-VNNI's with its instruction
// made of AVX2's.
std::vector<DotSet> AllDotSets();

// Activations with storage of their own.
class OwnedRows {
 public:
  OwnedRows(const DotContext& context, const std::vector<float>& x,
            int64_t rows, int64_t cols, int32_t block);
  const QuantizedRows& view() const { return view_; }
  const std::vector<int8_t>& codes() const { return codes_; }
  const std::vector<float>& scales() const { return scales_; }
  const std::vector<int16_t>& sums() const { return sums_; }
  bool finite(int64_t row) const { return finite_[static_cast<size_t>(row)]; }

 private:
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int16_t> sums_;
  std::unique_ptr<bool[]> finite_;
  QuantizedRows view_;
};

// A packed weight with storage of its own, 64-byte aligned, from stored rows.
class OwnedBlocks {
 public:
  OwnedBlocks(BlockFormat format, const std::vector<uint8_t>& stored,
              int64_t rows, int64_t cols);
  const BlockWeight& view() const { return view_; }

 private:
  std::vector<uint8_t> bytes_;
  BlockWeight view_;
};

// Activations of all sizes: the rows' blocks are 2^-20 to 2^20 large, some
// zero, some below 2^-100.
std::vector<float> SpreadActivations(uint64_t seed, int64_t rows, int64_t cols);

}  // namespace sluice::kernels

#endif  // SLUICE_TESTS_KERNELS_BLOCK_TESTER_H_
