#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_READ_PARTS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_READ_PARTS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/gguf_view.h"

// Parts of the readers of GGUFs (gguf_readers.h). Each fills or checks
// `config`, which has the values of all keys; INVALID_ARGUMENT names the key.
namespace sluice::gguf {

// Whether layer 0 has this tensor's bias.
bool HasBias(const GgufView& gguf, std::string_view name);
// Checks that a number is one of two, if the file has it.
Status MustBe(const GgufView& gguf, std::string_view key, double built,
              double none);

// Returns how many dimensions of a head turn.
StatusOr<int64_t> RotaryDim(const GgufView& gguf, const Json& config);
Status CheckWholeHeads(const GgufView& gguf, const Json& config);
// Sets the share of a head that turns: the reader multiplies and rounds down.
Status SetRotaryShare(const GgufView& gguf, Json& config);
// Checks that layers with windows have the theta of the rest.
Status CheckOneTheta(const GgufView& gguf, const Json& config);

// Sets the window of every layer.
Status SetWindow(const GgufView& gguf, Json& config);
// Sets the window and the layers that have it.
Status SetWindows(const GgufView& gguf, int64_t absent, int64_t period,
                  Json& config);

// Checks what is 1, or absent, where a family's mixture is fixed.
Status CheckPlainMixture(const GgufView& gguf);
// Sets the sizes that the experts' tensors have, where the file has no key.
void SetExpertSizes(const GgufView& gguf, Json& config);

// Returns the key's number of each of the first `layers` layers: of a list, or
// of all.
StatusOr<std::vector<int64_t>> IntsOfLayers(const GgufView& gguf,
                                            std::string_view key,
                                            int64_t layers);
// Returns the number that all of `ints` are but zeros; 0: all are zeros.
StatusOr<int64_t> TheOneAboveZero(const GgufView& gguf, std::string_view key,
                                  const std::vector<int64_t>& ints);
// block_count includes the layers behind the last: sets both numbers.
Status DropLayersBehind(const GgufView& gguf, Json& config);

}  // namespace sluice::gguf

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_READ_PARTS_H_
