#ifndef SLUICE_COMMON_TOOLS_HUB_FETCH_HEADERS_H_
#define SLUICE_COMMON_TOOLS_HUB_FETCH_HEADERS_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_model.h"
#include "common/tools/hub/pull.h"

namespace sluice {

// A GGUF that a repository has, or a split set.
struct HubGguf {
  std::string quant;  // ORG/NAME:QUANT names it
  uint64_t bytes = 0;
};

// A hub's model as far as its config and its tensors' names, types and shapes:
// files of the listed sizes, in a temporary folder, that have headers and hold
// no weights (holes read as zeros). The folder is gone with the object.
class ModelHeaders {
 public:
  ModelHeaders() = default;
  ~ModelHeaders();
  ModelHeaders(ModelHeaders&& other) noexcept;
  ModelHeaders& operator=(ModelHeaders&&) = delete;

  std::filesystem::path folder;
  std::string path;    // of the model: the folder, or its GGUF
  std::string commit;  // that `path` is of
  std::vector<HubGguf> ggufs;
};

// Fetches the headers of what PullModel would fetch, and the small files that
// say what the model is. UNAVAILABLE without a network; FAILED_PRECONDITION
// offline (HF_HUB_OFFLINE); errors as PullModel else.
StatusOr<ModelHeaders> FetchHeaders(const HubSettings& settings,
                                    const HubModel& model,
                                    PullObserver& observer);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_FETCH_HEADERS_H_
