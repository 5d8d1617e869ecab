#include "common/serving/json_digest.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/json.h"
#include "common/serving/stable_hash.h"

namespace sluice::serving {
namespace {

enum Mark : uint64_t {
  kMarkNull,
  kMarkFalse,
  kMarkTrue,
  kMarkInteger,
  kMarkReal,
  kMarkText,
  kMarkList,
  kMarkObject
};

// A whole number is hashed as the integer that it is, if that has 64 bits.
uint64_t NumberDigest(double value) {
  constexpr double kTwo63 = 9223372036854775808.0;
  if (value == std::floor(value) && value >= -kTwo63 && value < 2 * kTwo63) {
    const uint64_t integer =
        value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value))
                  : static_cast<uint64_t>(value);
    return StableHash().Add(kMarkInteger).Add(integer).value();
  }
  return StableHash().Add(kMarkReal).Add(value).value();
}

uint64_t Digest(const Json& value, bool ordered);

// A recursion as deep as ParseJson lets a body be. `ordered`: the order of
// objects' members counts.
uint64_t Digest(const Json& value, bool ordered) {
  StableHash hash;
  switch (value.type()) {
    case Json::value_t::boolean:
      return hash.Add(value.get<bool>() ? kMarkTrue : kMarkFalse).value();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return hash.Add(kMarkInteger).Add(value.get<uint64_t>()).value();
    case Json::value_t::number_float:
      return NumberDigest(value.get<double>());
    case Json::value_t::string:
      return hash.Add(kMarkText)
          .Add(std::string_view(value.get_ref<const std::string&>()))
          .value();
    case Json::value_t::array:
      hash.Add(kMarkList);
      for (const Json& element : value) hash.Add(Digest(element, ordered));
      return hash.value();
    case Json::value_t::object: {
      uint64_t members = 0;
      for (const auto& [key, member] : value.items()) {
        const uint64_t digest = MemberDigest(key, member, ordered);
        if (ordered) hash.Add(digest);
        members += digest;  // a sum is the same in any order
      }
      return hash.Add(kMarkObject).Add(members).value();
    }
    default:
      return hash.Add(kMarkNull).value();
  }
}

bool IsAmong(MemberNames names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

uint64_t MemberDigest(std::string_view name, const Json& value, bool ordered) {
  return StableHash().Add(name).Add(Digest(value, ordered)).value();
}

uint64_t BodyDigest(const Json& body, MemberNames silent,
                    MemberNames unordered) {
  uint64_t members = 0;
  for (const auto& [name, member] : body.items()) {
    if (member.is_null() || IsAmong(silent, name)) continue;
    members += MemberDigest(name, member, !IsAmong(unordered, name));
  }
  return StableHash().Add(members).value();
}

}  // namespace sluice::serving
