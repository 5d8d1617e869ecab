#ifndef SLUICE_COMMON_SERVING_POOLING_H_
#define SLUICE_COMMON_SERVING_POOLING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/core/sampling_params.h"

namespace sluice::weights {
class ModelFile;
}  // namespace sluice::weights

namespace sluice::serving {

// How the hidden states of a prompt [T, H] become its embedding [H].
enum class Pooling { kNone, kFirst, kLast, kMean };

// What a model's files say of embeddings.
struct EmbeddingRule {
  Pooling pooling = Pooling::kNone;
  // Of kNone: why the model has no embeddings here, with the key that is
  // missing or is not built; for an error.
  std::string why;
};

// Reads modules.json and the pooling's config.json of sentence-transformers, or
// a GGUF's ARCH.pooling_type.
EmbeddingRule ReadEmbeddingRule(const weights::ModelFile& file);

// Which rows a pooling takes.
HiddenWanted WantedBy(Pooling pooling);

// Takes the rows of one prompt in the order of their positions. The result does
// not depend on how the rows were cut. One thread.
class Pooler {
 public:
  explicit Pooler(Pooling pooling) : pooling_(pooling) {}

  // `rows` [n, H], of positions that follow those before: all of the prompt's,
  // or with kLast the last.
  void Add(std::span<const float> rows, size_t hidden_size);
  // Returns the first `dimensions` values of the embedding (0: all), divided by
  // their Euclidean norm; zeros stay zeros. At least one row was added.
  std::vector<float> Finish(size_t dimensions) const;

 private:
  const Pooling pooling_;
  std::vector<double> sums_;  // [H]; of kFirst and kLast one row
  int64_t count_ = 0;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_POOLING_H_
