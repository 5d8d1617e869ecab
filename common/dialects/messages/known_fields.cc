#include "common/dialects/messages/known_fields.h"

#include <vector>

#include "common/serving/plain_body.h"

namespace sluice::messages {
namespace {

namespace rows = serving::rows;
using rows::Ignored;
using rows::Own;
using rows::Unbuilt;

// Of fields that ask for nothing.
constexpr std::string_view kEmpty = R"(["", [], {}])";
constexpr std::string_view kNoTools = ": this server runs no tools";

constexpr serving::RequestField kFields[] = {
    Own("model"),
    rows::kMaxTokens,
    Own("messages").Unordered(),
    Own("system").Unordered(),
    Unbuilt("mcp_servers", kEmpty, kNoTools),
    Unbuilt("container", kEmpty, kNoTools),
    rows::kTemperature,
    rows::kTopP,
    rows::kTopK,
    rows::kMinP,
    rows::kSeed,
    rows::kFrequencyPenalty,
    rows::kPresencePenalty,
    rows::kRepetitionPenalty,
    rows::kIgnoreEos,
    rows::kMinTokens,
    rows::kStopTokenIds,
    rows::kAllowedTokenIds,
    rows::kBadWords,
    rows::kPriority,
    rows::kStop.Named("stop_sequences"),
    rows::kStream,
    rows::kCacheSalt,
    Own("output_config").Constrains(),
    Own("output_format").Constrains(),
    Own("thinking").Unordered(),
    Own("tool_choice").Unordered().Constrains(),
    Own("tools").Constrains(),
    Ignored("billing_policy"),
    Ignored("cache_control"),
    Ignored("compaction"),
    Ignored("context_management"),
    Ignored("diagnostics"),
    Ignored("fallbacks"),
    Ignored("inference_geo"),
    Ignored("metadata"),
    Ignored("service_tier"),
    Ignored("speed"),
    Ignored("thread"),
    Ignored("user_profile_id"),
    Ignored("workspace_id"),
};

constexpr serving::PlainValue kPlainValues[] = {
    {"tools", "[]"},
    {"tool_choice", R"({"type":"auto"})"},
    {"tool_choice", R"({"type":"none"})"}};

}  // namespace

serving::FieldTable KnownFields() { return kFields; }

bool IsPlainBody(std::string_view body) {
  static const auto* const names =
      new std::vector<std::string_view>(serving::PlainNames(kFields));
  return serving::IsPlainBody(body, *names, kPlainValues);
}

}  // namespace sluice::messages
