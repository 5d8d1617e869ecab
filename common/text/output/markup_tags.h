#ifndef SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_
#define SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_

#include <string_view>

namespace sluice {

// The markup of the formats in text.
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";
inline constexpr std::string_view kArgKey = "<arg_key>";
inline constexpr std::string_view kArgKeyEnd = "</arg_key>";
inline constexpr std::string_view kArgValue = "<arg_value>";
inline constexpr std::string_view kArgValueEnd = "</arg_value>";
inline constexpr std::string_view kFunction = "<function=";
inline constexpr std::string_view kFunctionEnd = "</function>";
inline constexpr std::string_view kParameter = "<parameter=";
inline constexpr std::string_view kParameterEnd = "</parameter>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_
