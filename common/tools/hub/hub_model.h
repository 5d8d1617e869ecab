#ifndef SLUICE_COMMON_TOOLS_HUB_HUB_MODEL_H_
#define SLUICE_COMMON_TOOLS_HUB_HUB_MODEL_H_

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice {

// A model on a hub, as people write it: ORG/NAME[@REVISION][:QUANT].
struct HubModel {
  std::string repository;         // ORG/NAME
  std::string revision = "main";  // a branch, a tag or a commit
  std::string quant;              // of a GGUF, "Q4_K_M"; empty: any
};

// Parses `text`. INVALID_ARGUMENT for a name that no hub has, or that could
// leave the cache's folder.
StatusOr<HubModel> ParseHubModel(std::string_view text);

// Returns whether `revision` is a whole commit: 40 digits of hexadecimal.
bool IsCommit(std::string_view revision);

// Checks a file's path within a repository, as a hub lists it: relative, its
// parts neither empty nor "." nor "..", no odd characters.
Status CheckFilePath(std::string_view path);

enum class Slash { kKeep, kEncode };
// Returns `text` for a URL: all but letters, digits and "-._~" as %XX.
std::string UrlEncoded(std::string_view text, Slash slash);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_HUB_MODEL_H_
