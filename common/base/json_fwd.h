#ifndef SLUICE_COMMON_BASE_JSON_FWD_H_
#define SLUICE_COMMON_BASE_JSON_FWD_H_

#include <nlohmann/json_fwd.hpp>

namespace sluice {

// Json's name without its definition, which keeps headers cheap. Code that
// reads a value includes common/base/json.h.
using Json = nlohmann::ordered_json;

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_FWD_H_
