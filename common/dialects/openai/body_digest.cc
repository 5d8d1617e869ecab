#include "common/dialects/openai/body_digest.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/dialects/openai/known_fields.h"
#include "common/serving/json_digest.h"
#include "common/serving/stable_hash.h"

namespace sluice::openai {
namespace {

// Built fields that change no answer's tokens or form.
constexpr std::string_view kSilentFields[] = {"model", "sse_ping_interval",
                                              "cache_salt", "priority"};

// Fields in whose objects the order of members changes nothing, or the prompt's
// tokens alone. An answer has the members of its schema in the schema's order.
constexpr std::string_view kUnorderedFields[] = {
    "messages",      "stream_options", "logit_bias", "tool_choice",
    "function_call", "thinking",       "reasoning"};

template <size_t N>
bool IsAmong(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
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
      members += serving::MemberDigest(key, member, ordered);
    }
  }
  return serving::StableHash().Add(members).value();
}

}  // namespace sluice::openai
