#include "common/dialects/messages/known_fields.h"

#include <algorithm>

#include "common/serving/plain_body.h"

namespace sluice::messages {
namespace {

constexpr std::string_view kRead[] = {
    "allowed_token_ids",
    "bad_words",
    "priority",
    "cache_salt",
    "container",
    "frequency_penalty",
    "ignore_eos",
    "max_tokens",
    "mcp_servers",
    "messages",
    "min_p",
    "min_tokens",
    "model",
    "output_config",
    "output_format",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop_sequences",
    "stop_token_ids",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
};

constexpr std::string_view kIgnored[] = {
    "billing_policy", "cache_control", "compaction",    "context_management",
    "diagnostics",    "fallbacks",     "inference_geo", "metadata",
    "service_tier",   "speed",         "thread",        "user_profile_id",
    "workspace_id",
};

// Members that bring no grammar, whatever their value is.
constexpr std::string_view kPlainNames[] = {
    "allowed_token_ids",
    "bad_words",
    "cache_control",
    "cache_salt",
    "context_management",
    "frequency_penalty",
    "ignore_eos",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "min_tokens",
    "model",
    "presence_penalty",
    "priority",
    "repetition_penalty",
    "seed",
    "service_tier",
    "stop_sequences",
    "stop_token_ids",
    "stream",
    "system",
    "temperature",
    "thinking",
    "top_k",
    "top_p",
};
static_assert(std::ranges::is_sorted(kPlainNames));

constexpr serving::PlainValue kPlainValues[] = {
    {"tools", "[]"},
    {"tool_choice", R"({"type":"auto"})"},
    {"tool_choice", R"({"type":"none"})"}};

}  // namespace

std::span<const std::string_view> ReadFields() { return kRead; }
std::span<const std::string_view> IgnoredFields() { return kIgnored; }

bool IsPlainBody(std::string_view body) {
  return serving::IsPlainBody(body, kPlainNames, kPlainValues);
}

}  // namespace sluice::messages
