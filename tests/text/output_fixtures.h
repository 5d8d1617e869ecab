#ifndef SLUICE_TESTS_TEXT_OUTPUT_FIXTURES_H_
#define SLUICE_TESTS_TEXT_OUTPUT_FIXTURES_H_

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/output/output_parser.h"
#include "common/text/tokenizer.h"

namespace sluice::testing {

inline constexpr OutputFormat kGlm = {ToolFormat::kGlm,
                                      ReasoningFormat::kThink};
inline constexpr OutputFormat kIntellect = {ToolFormat::kQwenCoder,
                                            ReasoningFormat::kThink};
inline constexpr OutputFormat kHermes = {ToolFormat::kHermes,
                                         ReasoningFormat::kThink};
inline constexpr OutputFormat kLlama = {ToolFormat::kLlamaJson,
                                        ReasoningFormat::kNone};
inline constexpr OutputFormat kHarmony = {ToolFormat::kHarmony,
                                          ReasoningFormat::kHarmony};

// A tokenizer of bytes with harmony's tokens.
const Tokenizer& HarmonyTokenizer();

// A piece of a model's output: a marker of harmony's, or text (id -1), which
// may be cut anywhere.
struct OutputPiece {
  TokenId id = -1;
  std::string text;
};
using OutputStream = std::vector<OutputPiece>;

// `text` as one piece.
OutputStream AsText(std::string_view text);
// `text` with the spellings of harmony's tokens as markers.
OutputStream AsHarmony(std::string_view text);

// The events of `stream`, neighbours that belong together joined.
OutputEvents ParseStream(const OutputFormat& format,
                         const OutputRequest& request,
                         const OutputStream& stream,
                         OutputEnd end = OutputEnd::kStopped);

// The same of each of `streams`, as outputs of one request.
std::vector<OutputEvents> ParseStreams(const OutputFormat& format,
                                       const OutputRequest& request,
                                       const std::vector<OutputStream>& streams,
                                       OutputEnd end = OutputEnd::kStopped);

// `stream` with its texts cut into pieces of one byte, at byte `at` of the
// text of all, or at random.
OutputStream CutIntoBytes(const OutputStream& stream);
OutputStream CutAt(const OutputStream& stream, size_t at);
OutputStream CutAtRandom(const OutputStream& stream, std::mt19937_64& random);
size_t TextSize(const OutputStream& stream);

// Events for people: "think[..] text[..] NAME[arguments]" in their order; the
// arguments of a call that stays open end with "..." instead of "]".
std::string Show(const OutputEvents& events);

// What a parser makes of `stream`, which must not depend on how it is cut:
// tried whole, in bytes, in two at every place, and in pieces of random sizes.
std::string Told(const OutputFormat& format, const OutputRequest& request,
                 const OutputStream& stream,
                 OutputEnd end = OutputEnd::kStopped);

// get_weather(city: string, days: integer), get_current_time(),
// search(query: string, limit: integer, deep: boolean, tags: array, options:
// object, ratio: number, note: string or null), write_file(path, content:
// string), mcp__gmail-cleanup__list_filters(label: string), free(no schema).
OutputRequest WithTools();
OutputRequest WithoutTools();
// WithTools(), the prompt ended within reasoning.
OutputRequest InReasoning();

// What is told of GLM's and of harmony's `text`, with tools.
std::string Glm(std::string_view text, OutputEnd end = OutputEnd::kStopped);
std::string Harmony(std::string_view text, OutputEnd end = OutputEnd::kStopped);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TEXT_OUTPUT_FIXTURES_H_
