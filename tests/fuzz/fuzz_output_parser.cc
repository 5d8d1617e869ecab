// A model's output into the parser of a format: nothing raises, calls do not
// overlap, and what comes out does not depend on how the text was cut. The
// first byte says which format, how it is cut and whether there are tools; of
// the rest a byte below 7 is a marker of harmony's, and all others are text.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/text/output/output_parser.h"
#include "common/text/output/parsers.h"
#include "common/text/tokenizer.h"
#include "tests/text/output_fixtures.h"

namespace sluice {
namespace {

constexpr OutputFormat kFormats[] = {
    {ToolFormat::kGlm, ReasoningFormat::kThink},
    {ToolFormat::kQwenCoder, ReasoningFormat::kThink},
    {ToolFormat::kHermes, ReasoningFormat::kThink},
    {ToolFormat::kLlamaJson, ReasoningFormat::kNone},
    {ToolFormat::kHarmony, ReasoningFormat::kHarmony},
};
constexpr size_t kNumMarkers = std::size(kHarmonyTokens);

OutputRequest RequestFor(uint8_t flags) {
  OutputRequest request;
  request.in_reasoning = (flags & 1) != 0;
  if ((flags & 2) != 0) return request;
  request.tools = {
      {"f", R"({"properties": {"s": {"type": "string"}, "i": {"type":
               "integer"}, "o": {"type": ["object", "null"]}}})"},
      {"free", ""}};
  return request;
}

void Join(OutputEvents more, OutputEvents& events) {
  for (OutputEvent& event : more) {
    const bool is_text = event.kind != OutputEvent::Kind::kCallBegin &&
                         event.kind != OutputEvent::Kind::kCallEnd;
    if (is_text && !events.empty() && events.back().kind == event.kind) {
      events.back().text += event.text;
    } else {
      events.push_back(std::move(event));
    }
  }
}

OutputEvents Parse(OutputParser& parser, bool stopped, std::string_view input,
                   size_t piece) {
  OutputEvents events;
  size_t at = 0;
  while (at < input.size()) {
    const auto byte = static_cast<unsigned char>(input[at]);
    if (byte < kNumMarkers) {
      Join(parser.Feed(byte, kHarmonyTokens[byte]), events);
      ++at;
      continue;
    }
    size_t end = at;
    while (end < input.size() && end < at + piece &&
           static_cast<unsigned char>(input[end]) >= kNumMarkers) {
      ++end;
    }
    Join(parser.Feed(kNumMarkers, input.substr(at, end - at)), events);
    at = end;
  }
  Join(parser.Finish(stopped ? OutputEnd::kStopped : OutputEnd::kCutShort),
       events);
  return events;
}

void CheckOrder(const OutputEvents& events) {
  bool open = false;
  int calls = 0;
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kCallBegin:
        SLUICE_CHECK(!open && event.call == calls);
        ++calls;
        open = true;
        break;
      case OutputEvent::Kind::kArguments:
      case OutputEvent::Kind::kCallEnd:
        SLUICE_CHECK(open && event.call == calls - 1);
        open = event.kind == OutputEvent::Kind::kArguments;
        break;
      default:
        SLUICE_CHECK(!open && event.call == -1);
    }
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  const uint8_t flags = data[0];
  const bool stopped = (flags & 4) != 0;
  constexpr size_t kNumFormats = std::size(sluice::kFormats);
  const auto parsers =
      sluice::NewOutputParsers(sluice::kFormats[flags / 8 % kNumFormats],
                               sluice::testing::HarmonyTokenizer().vocabulary(),
                               sluice::RequestFor(flags), 3);
  const auto whole =
      sluice::Parse(*parsers[0], stopped, input, input.size() + 1);
  sluice::CheckOrder(whole);
  const size_t piece = 2 + flags / (8 * kNumFormats);
  SLUICE_CHECK(sluice::Parse(*parsers[1], stopped, input, 1) == whole);
  SLUICE_CHECK(sluice::Parse(*parsers[2], stopped, input, piece) == whole);
  return 0;
}
