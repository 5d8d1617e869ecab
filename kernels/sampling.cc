#include "kernels/sampling.h"

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

static_assert(kLogitsPiece == cpu::kPiece);

int64_t SizeOf(std::span<const float> some) {
  return static_cast<int64_t>(some.size());
}

}  // namespace

bool PieceMaxima(Isa isa, std::span<const float> logits,
                 std::span<float> maxima) {
  SLUICE_CHECK(SizeOf(maxima) == NumPieces(SizeOf(logits)));
  return cpu::OpsFor(isa).piece_maxima(logits.data(), SizeOf(logits),
                                       maxima.data());
}

void WeightSums(Isa isa, std::span<const float> logits, Softening softening,
                std::span<float> sums) {
  SLUICE_CHECK(SizeOf(sums) == NumPieces(SizeOf(logits)));
  cpu::OpsFor(isa).weight_sums(logits.data(), SizeOf(logits),
                               {softening.max, softening.scale}, sums.data());
}

void Weights(Isa isa, std::span<const float> logits, Softening softening,
             std::span<float> weights) {
  SLUICE_CHECK(weights.size() == logits.size());
  cpu::OpsFor(isa).weights(logits.data(), SizeOf(logits),
                           {softening.max, softening.scale}, weights.data());
}

int64_t SelectNotBelow(Isa isa, std::span<const float> logits, float least,
                       int32_t first, const ChosenLogits& out) {
  return cpu::OpsFor(isa).select_not_below(logits.data(), SizeOf(logits), least,
                                           first, {out.values, out.ids});
}

int64_t CountAbove(Isa isa, std::span<const float> logits, float value) {
  return cpu::OpsFor(isa).count_above(logits.data(), SizeOf(logits), value);
}

}  // namespace sluice::kernels
