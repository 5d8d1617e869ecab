#include "common/dialects/openai/body_digest.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/dialects/openai/known_fields.h"
#include "common/serving/stable_hash.h"

namespace sluice::openai {
namespace {

// Built fields that change no answer's tokens or form.
constexpr std::string_view kSilentFields[] = {"model", "sse_ping_interval",
                                              "cache_salt"};

// Fields in whose objects the order of members changes nothing, or the prompt's
// tokens alone. An answer has the members of its schema in the schema's order.
constexpr std::string_view kUnorderedFields[] = {
    "messages",      "stream_options", "logit_bias", "tool_choice",
    "function_call", "thinking",       "reasoning"};

template <size_t N>
bool IsAmong(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

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
    return serving::StableHash().Add(kMarkInteger).Add(integer).value();
  }
  return serving::StableHash().Add(kMarkReal).Add(value).value();
}

uint64_t Digest(const Json& value, bool ordered);

uint64_t MemberDigest(const std::string& key, const Json& value, bool ordered) {
  return serving::StableHash()
      .Add(std::string_view(key))
      .Add(Digest(value, ordered))
      .value();
}

// A recursion as deep as ParseJson lets a body be. `ordered`: the order of
// objects' members counts.
uint64_t Digest(const Json& value, bool ordered) {
  serving::StableHash hash;
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

std::set<std::string, std::less<>> CountedFields() {
  std::set<std::string, std::less<>> counted;
  for (const KnownField& field : KnownFields()) {
    const bool silent = IsAmong(kSilentFields, field.name);
    if (field.use == FieldUse::kBuilt && !silent) {
      counted.emplace(field.name);
    }
  }
  return counted;
}

}  // namespace

uint64_t BodyDigest(const Json& body) {
  static const auto* const counted =
      new std::set<std::string, std::less<>>(CountedFields());
  uint64_t members = 0;
  for (const auto& [key, member] : body.items()) {
    if (!member.is_null() && counted->contains(key)) {
      const bool ordered = !IsAmong(kUnorderedFields, key);
      members += MemberDigest(key, member, ordered);
    }
  }
  return serving::StableHash().Add(members).value();
}

}  // namespace sluice::openai
