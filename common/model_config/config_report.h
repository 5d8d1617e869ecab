#ifndef SLUICE_COMMON_MODEL_CONFIG_CONFIG_REPORT_H_
#define SLUICE_COMMON_MODEL_CONFIG_CONFIG_REPORT_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

// Every key of a config.json and every metadata key of a GGUF is read, known to
// have no effect, or reported.
namespace sluice {

// Returns the keys of a config.json that no reader asked for and that are not
// known to have no effect, sorted; "rope_scaling.KEY" for keys of objects that
// are known. Keys with null are absent.
std::vector<std::string> UnreadConfigKeys(const Json& config,
                                          const ReadKeys& read);

// Returns a GGUF's keys that are not in `asked` and not known to have no
// effect. A key of the architecture is without its name in `asked`:
// ".block_count". INVALID_ARGUMENT names a key that changes what the model
// computes.
StatusOr<std::vector<std::string>> UnreadGgufKeys(
    const weights::GgufMetadata& metadata, const std::string& architecture,
    const std::set<std::string>& asked);

// Returns the stored tensors that nothing reads.
std::vector<std::string> UnreadTensors(const ModelConfig& config,
                                       const weights::ModelFile& model);

// Logs the keys of a model that no reader knows, if there are any: a load calls
// it once.
void LogUnreadKeys(const weights::ModelFile& model);

// Returns the keys and the tensors with which stages compute, for the identity
// of the model: keys that were read but for the tokens' ids, RoPE's keys in one
// spelling; nothing for a model that is not built.
std::optional<weights::ComputedParts> ComputedPartsOf(
    const weights::ModelFile& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_CONFIG_REPORT_H_
