#ifndef SLUICE_COMMON_WEIGHTS_FIND_MODEL_H_
#define SLUICE_COMMON_WEIGHTS_FIND_MODEL_H_

#include <string>

#include "common/base/status.h"

namespace sluice::weights {

inline constexpr char kDllamaSuffix[] = ".m";  // models of distributed-llama

// Whether `path` is a file with GGUF's first bytes, whatever its name.
bool IsGgufFile(const std::string& path);

// Returns a folder's only model in a file: a GGUF by its first bytes or name, a
// split set's first, or one of distributed-llama. Projectors of images, which
// hubs lay beside GGUFs, are no models. NOT_FOUND names the files where there
// are several.
StatusOr<std::string> FindModelFile(const std::string& folder);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_FIND_MODEL_H_
