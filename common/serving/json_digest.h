#ifndef SLUICE_COMMON_SERVING_JSON_DIGEST_H_
#define SLUICE_COMMON_SERVING_JSON_DIGEST_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/json_fwd.h"

namespace sluice::serving {

// Hashes of what a body asks for: white space and the spelling of numbers and
// strings do not count. The same in every process.

// Members of a body, by name.
using MemberNames = std::span<const std::string_view>;

// Returns the hash of the members of `body`, an object, in any order, without
// nulls and without `silent` members, which change no answer. Within
// `unordered` members the order of objects' members does not count.
uint64_t BodyDigest(const Json& body, MemberNames silent,
                    MemberNames unordered);

// Returns the hash of a member, which a sum may join to others. `ordered`: the
// order of objects' members counts.
uint64_t MemberDigest(std::string_view name, const Json& value, bool ordered);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_JSON_DIGEST_H_
