#include "tests/gpu/row_bits.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {
namespace {

using kernels::RandomFloats;

// Signed powers of two, from 2^-24 to 2^24, times up to 2. A number in four is
// what its left neighbour is, with the other sign; one in fifty is a zero.
std::vector<float> WideFloats(uint64_t seed, int64_t n, bool cancel) {
  const std::vector<float> powers = RandomFloats(seed, n, 24.0f);
  std::vector<float> values = RandomFloats(seed + 1, n, 2.0f);
  for (int64_t i = 0; i < n; ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(powers[i]));
    if (i % 4 == 3) values[i] = cancel ? -values[i - 1] : values[i - 1];
    if (i % 50 == 7) values[i] = i % 100 == 7 ? 0.0f : -0.0f;
  }
  return values;
}

std::unique_ptr<Weight> WideWeight(Backend& backend, int64_t rows,
                                   int64_t cols) {
  HostWeight weight(kernels::WeightType::kBf16, rows, cols);
  const std::vector<float> values = WideFloats(11, rows * cols, false);
  auto* const to = weight.data.as<uint16_t>();
  for (int64_t i = 0; i < rows * cols; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    to[i] = static_cast<uint16_t>(bits >> 16);
  }
  std::vector<HostWeight> parts;
  parts.push_back(std::move(weight));
  return backend.Pack(std::move(parts));
}

class WideProduct {
 public:
  WideProduct(Backend& backend, int64_t tokens, int64_t rows, int64_t cols)
      : backend_(backend),
        rows_(rows),
        cols_(cols),
        weight_(WideWeight(backend, rows, cols)),
        from_(WideFloats(21, tokens * cols, true)),
        x_(backend.Allocate(static_cast<size_t>(tokens * cols) * 4)),
        y_(backend.Allocate(static_cast<size_t>(tokens * rows) * 4)) {}
  // Of tokens [begin, begin + tokens), in one call.
  std::vector<float> Of(int64_t begin, int64_t tokens) {
    StepInputs step(
        {static_cast<int32_t>(tokens), 1, static_cast<int32_t>(tokens), 1});
    step.num_tokens = static_cast<int32_t>(tokens);
    const DeviceMatrix x = {x_.data(), tokens, cols_, cols_};
    const DeviceMatrix y = {y_.data(), tokens, rows_, rows_};
    std::vector<float> got(static_cast<size_t>(tokens * rows_));
    backend_.BeginStep(step);
    backend_.CopyIn(from_.data() + begin * cols_, x);
    backend_.Linear(x, {}, *weight_, nullptr, y);
    backend_.CopyOut(y, got.data());
    backend_.EndStep();
    return got;
  }

 private:
  Backend& backend_;
  const int64_t rows_;
  const int64_t cols_;
  const std::unique_ptr<Weight> weight_;
  const std::vector<float> from_;
  const DeviceMemory x_;
  const DeviceMemory y_;
};

}  // namespace

bool RowsHaveTheirOwnBits(Backend& backend, Json& to) {
  constexpr int64_t kTokens = 300;
  constexpr int64_t kRows = 200;
  bool all = true;
  for (const int64_t cols : {4096, 1056, 1037, 20}) {
    WideProduct product(backend, kTokens, kRows, cols);
    std::vector<float> alone;
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::vector<float> row = product.Of(t, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (const int64_t tokens : {8, 9, 33, 65, 128, 129, 300}) {
      const auto begin = alone.begin();
      const bool same =
          kernels::SameBits(product.Of(0, tokens),
                            std::vector<float>(begin, begin + tokens * kRows));
      to.push_back({{"op", "bf16 rows alone"},
                    {"cols", cols},
                    {"tokens", tokens},
                    {"same_bits", same}});
      all = all && same;
    }
  }
  return all;
}

}  // namespace sluice::testing
