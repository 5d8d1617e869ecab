#include "tests/kernels/block_tester.h"

#include <cmath>

#include "kernels/cpu/block_ops.h"
#include "tests/kernels/block_avxvnni_emulated.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {

std::vector<DotSet> AllDotSets() {
  std::vector<DotSet> sets = {{"scalar", &cpu::kScalarBlockOps}};
  for (int i = 0; i < kNumDotIsas; ++i) {
    const auto isa = static_cast<DotIsa>(i);
    if (HasDotIsa(isa)) sets.push_back({ToString(isa), &BlockOpsFor(isa)});
  }
#if defined(__x86_64__)
  if (HasDotIsa(DotIsa::kAvx2)) {
    sets.push_back({"avxvnni_emulated", &cpu::kEmulatedAvxVnniBlockOps});
  }
#endif
  return sets;
}

OwnedRows::OwnedRows(const DotContext& context, const std::vector<float>& x,
                     int64_t rows, int64_t cols, int32_t block)
    : codes_(static_cast<size_t>(rows * cols)),
      scales_(static_cast<size_t>(rows * cols / block)),
      sums_(static_cast<size_t>(rows * cols / 16)),
      finite_(new bool[static_cast<size_t>(rows)]) {
  view_ = {.codes = codes_.data(),
           .scales = scales_.data(),
           .sums = sums_.data(),
           .rows = rows,
           .cols = cols,
           .block = block};
  QuantizeRows(context, {x.data(), rows, cols, cols}, view_, finite_.get());
}

OwnedBlocks::OwnedBlocks(BlockFormat format, const std::vector<uint8_t>& stored,
                         int64_t rows, int64_t cols)
    : bytes_(static_cast<size_t>(PackedBytes(format, rows, cols)) + 64) {
  const size_t start =
      (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  PackRows({.format = format,
            .data = stored.data(),
            .rows = rows,
            .cols = cols,
            .stride = StoredRowBytes(format, cols)},
           bytes_.data() + start);
  view_ = {format, bytes_.data() + start, rows, cols};
}

std::vector<float> SpreadActivations(uint64_t seed, int64_t rows,
                                     int64_t cols) {
  auto x = RandomFloats(seed, rows * cols);
  for (size_t k = 0; k < x.size(); ++k) {
    const int block = static_cast<int>(k / 32);
    x[k] = std::ldexp(x[k], block * 7 % 41 - 20);
    if (block % 19 == 5) x[k] = 0;
    if (block % 19 == 6) x[k] = std::ldexp(x[k], -120);
  }
  return x;
}

}  // namespace sluice::kernels
