#ifndef SLUICE_COMMON_SERVING_REQUEST_FIELDS_H_
#define SLUICE_COMMON_SERVING_REQUEST_FIELDS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/sampling_params.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"
#include "common/serving/request_limits.h"

namespace sluice::serving {

// The fields of a dialect's bodies as a table: what each is called, what is
// done with it, its kind, its range, and where its value goes.

enum class FieldUse {
  kBuilt,    // read, checked and obeyed
  kIgnored,  // accepted with any value, without effect
  kUnbuilt,  // accepted with the value that changes nothing, else refused
};

// The member that a field sets, whose type is the field's kind: numbers,
// integers, flags, a text, token ids, strings. Nothing: the dialect reads the
// field itself.
using FieldGoal =
    std::variant<std::monostate, std::optional<double> GenerationFields::*,
                 std::optional<int64_t> GenerationFields::*,
                 int64_t GenerationFields::*, int32_t GenerationFields::*,
                 std::optional<uint64_t> GenerationFields::*,
                 bool GenerationFields::*, std::string GenerationFields::*,
                 std::vector<TokenId> GenerationFields::*,
                 std::vector<std::string> GenerationFields::*>;

inline constexpr int kAnyPlace = -1;

// A row. The methods return a row that differs in what they name.
struct RequestField {
  std::string_view name;
  FieldUse use = FieldUse::kBuilt;
  FieldGoal goal = {};
  // Of numbers. Of other kinds `high` alone: the most bytes of a text, token
  // ids or strings; 0: no limit, or those of the kind.
  double low = 0;
  double high = 0;
  // Of kUnbuilt: a JSON array of the values, besides null, that change nothing.
  std::string_view neutral = {};
  // Of kUnbuilt: what an error says behind "not supported"; empty: the values.
  std::string_view hint = {};
  int place = kAnyPlace;       // bits, as the dialect names its places
  bool is_silent = false;      // changes no token and no event of an answer
  bool is_unordered = false;   // the order of its objects' members, neither
  bool may_constrain = false;  // may bring a grammar

  constexpr RequestField Named(std::string_view other) const {
    RequestField row = *this;
    row.name = other;
    return row;
  }
  constexpr RequestField Within(double from, double to) const {
    RequestField row = *this;
    row.low = from;
    row.high = to;
    return row;
  }
  constexpr RequestField At(int bits) const {
    RequestField row = *this;
    row.place = bits;
    return row;
  }
  constexpr RequestField Silent() const {
    RequestField row = *this;
    row.is_silent = true;
    return row;
  }
  constexpr RequestField Unordered() const {
    RequestField row = *this;
    row.is_unordered = true;
    return row;
  }
  constexpr RequestField Constrains() const {
    RequestField row = *this;
    row.may_constrain = true;
    return row;
  }
};

// What makes a table: rows of a dialect's own, and the fields that several
// dialects have, under their usual names.
namespace rows {

// A field that its dialect reads.
constexpr RequestField Own(std::string_view name) { return {name}; }
constexpr RequestField Ignored(std::string_view name) {
  return {.name = name, .use = FieldUse::kIgnored};
}
constexpr RequestField Unbuilt(std::string_view name, std::string_view neutral,
                               std::string_view hint = {}) {
  return {.name = name,
          .use = FieldUse::kUnbuilt,
          .neutral = neutral,
          .hint = hint};
}
// A field that sets `goal`.
constexpr RequestField Sets(std::string_view name, FieldGoal goal,
                            double low = 0, double high = 0) {
  return {.name = name, .goal = goal, .low = low, .high = high};
}

using Fields = GenerationFields;

inline constexpr double kMost = kMaxInt32;

inline constexpr RequestField kModel = Sets("model", &Fields::model);
inline constexpr RequestField kMaxTokens =
    Sets("max_tokens", &Fields::max_tokens, 1, kMost);
inline constexpr RequestField kMinTokens =
    Sets("min_tokens", &Fields::min_tokens, 0, kMost);
// Below 0: 0.
inline constexpr RequestField kTemperature =
    Sets("temperature", &Fields::temperature, 0, 2);
// 0: the likeliest token alone.
inline constexpr RequestField kTopP = Sets("top_p", &Fields::top_p, 0, 1);
// Below 0: 0, off.
inline constexpr RequestField kTopK = Sets("top_k", &Fields::top_k, -1, kMost);
inline constexpr RequestField kMinP = Sets("min_p", &Fields::min_p, 0, 1);
inline constexpr RequestField kSeed = Sets("seed", &Fields::seed);
inline constexpr RequestField kFrequencyPenalty = Sets(
    "frequency_penalty", &Fields::frequency_penalty, -kMaxPenalty, kMaxPenalty);
inline constexpr RequestField kPresencePenalty = Sets(
    "presence_penalty", &Fields::presence_penalty, -kMaxPenalty, kMaxPenalty);
inline constexpr RequestField kRepetitionPenalty =
    Sets("repetition_penalty", &Fields::repetition_penalty,
         kMinRepetitionPenalty, kMaxRepetitionPenalty);
// Together at most kMaxAllStopBytes.
inline constexpr RequestField kStop =
    Sets("stop", &Fields::stop, 0, kMaxStopStrings);
inline constexpr RequestField kStopTokenIds =
    Sets("stop_token_ids", &Fields::stop_token_ids, 0, kMaxClientStopTokenIds);
inline constexpr RequestField kIgnoreEos =
    Sets("ignore_eos", &Fields::ignore_eos);
inline constexpr RequestField kAllowedTokenIds = Sets(
    "allowed_token_ids", &Fields::allowed_token_ids, 0, kMaxAllowedTokenIds);
inline constexpr RequestField kBadWords =
    Sets("bad_words", &Fields::bad_words, 0, kMaxBadWords);
inline constexpr RequestField kThinkingBudget =
    Sets("thinking_token_budget", &Fields::thinking_budget, 1, kMost);
inline constexpr RequestField kPriority =
    Sets("priority", &Fields::priority, -kMost, kMost);
inline constexpr RequestField kCacheSalt =
    Sets("cache_salt", &Fields::cache_salt, 0, kMaxCacheSaltBytes);
inline constexpr RequestField kStream = Sets("stream", &Fields::stream);
inline constexpr RequestField kPingInterval =
    Sets("sse_ping_interval", &Fields::ping_interval, -1, kMaxPingSeconds);

}  // namespace rows

using FieldTable = std::span<const RequestField>;

struct FieldCheck {
  int place = kAnyPlace;    // the rows of these bits count
  bool strict = false;      // refuses members that are in no row
  std::string prefix = {};  // before names in errors: "options."
  // Of a member in no row; "#" stands for its number.
  std::string_view unknown = "field # of the body is not known here";
};

// INVALID_ARGUMENT names the first member of `body` that is not built and has a
// value that would change the answer (unsupported_parameter) or, if `strict`,
// that is in no row (unknown_parameter).
Status CheckFields(const Json& body, FieldTable table, const FieldCheck& check);

// Reads the rows at `place` with a goal into `out`, in the table's order. An
// absent field leaves the goal as it is. Errors stay in `in`; token ids are
// below `vocab_size`.
void ReadFields(FieldReader& in, FieldTable table, int place, int vocab_size,
                GenerationFields& out);

// Refuses, as `name`, min_tokens above max_tokens.
void CheckMinTokens(FieldReader& in, const GenerationFields& fields);

// Reads a number of tokens that penalties look at: here all of them, or none,
// which turns penalties off.
void ReadPenaltyWindow(FieldReader& in, std::string_view name,
                       GenerationFields& out);

// Reads `logprobs`, a flag, and `top_logprobs`, their number.
void ReadLogprobs(FieldReader& in, GenerationFields& out);

// Returns the object of field `name`; null: it is absent, or refused.
const Json* FindObject(FieldReader& in, std::string_view name);

// Sets the grammar of `out` to a schema, an object, true or false, of field
// `name`. Refuses other values, and a second grammar. Errors stay in `in`,
// whose prefix does not count.
void SetSchema(FieldReader& in, const std::string& name, const Json& schema,
               GenerationFields& out);

// Returns BodyDigest (json_digest.h) of a body: silent and ignored rows do not
// count.
uint64_t BodyDigest(const Json& body, FieldTable table);

// Returns the sorted names of the rows that bring no grammar, whatever their
// values are, for IsPlainBody (plain_body.h).
std::vector<std::string_view> PlainNames(FieldTable table,
                                         int place = kAnyPlace);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_FIELDS_H_
