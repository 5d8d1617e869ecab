#ifndef SLUICE_KERNELS_SAMPLING_H_
#define SLUICE_KERNELS_SAMPLING_H_

#include <cstdint>
#include <span>

#include "kernels/context.h"

namespace sluice::kernels {

// Passes over a row of logits, on the calling thread. All sums are over pieces
// of kLogitsPiece neighbours: a call for any run of whole pieces (the row's
// last one may be shorter) gives the bits of one call for the whole row.
inline constexpr int64_t kLogitsPiece = 256;

inline constexpr int64_t NumPieces(int64_t logits) {
  return (logits + kLogitsPiece - 1) / kLogitsPiece;
}

// A logit's weight in a draw: Exp((logit - max) * scale), each operation
// rounded once (see exp_log.h); exactly 1 for the largest logit. max is finite
// and no logit is above it.
struct Softening {
  float max = 0;
  float scale = 1;  // 1 / temperature, above 0
};

// maxima[p] = the largest logit of piece p, -inf if it has none above. False
// if a logit is NaN or +inf: maxima mean nothing then.
bool PieceMaxima(Isa isa, std::span<const float> logits,
                 std::span<float> maxima);

// sums[p] = the sum of the weights of piece p: 16 lanes i % 16 joined like
// matmul.h's dot product.
void WeightSums(Isa isa, std::span<const float> logits, Softening softening,
                std::span<float> sums);

// weights[i] = the weight of logits[i].
void Weights(Isa isa, std::span<const float> logits, Softening softening,
             std::span<float> weights);

// The logits that are at least `least`, in order, with their ids; `first` is
// the id of logits[0]. Returns how many. Both arrays have room for all and 16
// more, of which any may be overwritten.
struct ChosenLogits {
  float* values = nullptr;
  int32_t* ids = nullptr;
};
int64_t SelectNotBelow(Isa isa, std::span<const float> logits, float least,
                       int32_t first, const ChosenLogits& out);

// How many logits are above `value`.
int64_t CountAbove(Isa isa, std::span<const float> logits, float value);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_SAMPLING_H_
