#ifndef SLUICE_COMMON_BASE_JSON_FWD_H_
#define SLUICE_COMMON_BASE_JSON_FWD_H_

#include <nlohmann/json_fwd.hpp>

namespace sluice {

// Names Json without its definition: for headers, which stay cheap to read.
// Code that reads a value includes common/base/json.h.
using Json = nlohmann::ordered_json;

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_FWD_H_
