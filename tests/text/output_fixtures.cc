#include "tests/text/output_fixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "common/base/check.h"
#include "common/text/output/parsers.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"

namespace sluice::testing {
namespace {

OutputStream CutAtAll(const OutputStream& stream,
                      const std::vector<size_t>& places) {
  OutputStream cut;
  size_t begin = 0;
  auto place = places.begin();
  for (const OutputPiece& piece : stream) {
    if (piece.id >= 0) {
      cut.push_back(piece);
      continue;
    }
    size_t from = 0;
    for (; place != places.end() && *place < begin + piece.text.size();
         ++place) {
      const size_t to = *place - begin;
      if (to > from) cut.push_back({-1, piece.text.substr(from, to - from)});
      from = std::max(from, to);
    }
    cut.push_back({-1, piece.text.substr(from)});
    begin += piece.text.size();
  }
  return cut;
}

}  // namespace

const Tokenizer& HarmonyTokenizer() {
  static const auto& tokenizer = *[] {
    VocabularySpec spec;
    for (const std::string_view name : kHarmonyTokens) {
      spec.tokens.emplace_back(name);
      spec.kinds.push_back(TokenKind::kControl);
    }
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.push_back(
          ByteLevelText(std::string(1, static_cast<char>(byte))));
      spec.kinds.push_back(TokenKind::kNormal);
    }
    spec.byte_level = true;
    spec.patterns = PreTokenizerByName("llama-bpe")->patterns;
    TextSource source;
    source.tokenizer_json = *ToTokenizerJson(spec);
    auto made = Tokenizer::Make(source);
    SLUICE_CHECK(made.ok());
    return made->release();
  }();
  return tokenizer;
}

OutputStream AsText(std::string_view text) { return {{-1, std::string(text)}}; }

OutputStream AsHarmony(std::string_view text) {
  OutputStream stream;
  while (!text.empty()) {
    size_t next = text.size();
    std::string_view marker;
    for (const std::string_view name : kHarmonyTokens) {
      const size_t at = text.find(name);
      if (at < next) {
        next = at;
        marker = name;
      }
    }
    if (next > 0) stream.push_back({-1, std::string(text.substr(0, next))});
    text.remove_prefix(next);
    if (marker.empty()) continue;
    stream.push_back(
        {*HarmonyTokenizer().TokenToId(marker), std::string(marker)});
    text.remove_prefix(marker.size());
  }
  return stream;
}

namespace {

OutputEvents EventsOf(OutputParser& parser, const OutputStream& stream,
                      OutputEnd end) {
  OutputEvents joined;
  const auto take = [&joined](OutputEvents events) {
    for (OutputEvent& event : events) {
      const bool is_text = event.kind != OutputEvent::Kind::kCallBegin &&
                           event.kind != OutputEvent::Kind::kCallEnd;
      EXPECT_EQ(event.text.empty(), event.kind == OutputEvent::Kind::kCallEnd);
      if (is_text && !joined.empty() && joined.back().kind == event.kind) {
        EXPECT_EQ(joined.back().call, event.call);
        joined.back().text += event.text;
      } else {
        joined.push_back(std::move(event));
      }
    }
  };
  for (const OutputPiece& piece : stream) {
    take(parser.Feed(piece.id, piece.text));
  }
  take(parser.Finish(end));
  return joined;
}

}  // namespace

OutputEvents ParseStream(const OutputFormat& format,
                         const OutputRequest& request,
                         const OutputStream& stream, OutputEnd end) {
  return ParseStreams(format, request, {stream}, end).front();
}

std::vector<OutputEvents> ParseStreams(const OutputFormat& format,
                                       const OutputRequest& request,
                                       const std::vector<OutputStream>& streams,
                                       OutputEnd end) {
  const auto parsers = NewOutputParsers(format, HarmonyTokenizer().vocabulary(),
                                        request, streams.size());
  std::vector<OutputEvents> all;
  for (size_t i = 0; i < streams.size(); ++i) {
    all.push_back(EventsOf(*parsers[i], streams[i], end));
  }
  return all;
}

size_t TextSize(const OutputStream& stream) {
  size_t size = 0;
  for (const OutputPiece& piece : stream) {
    if (piece.id < 0) size += piece.text.size();
  }
  return size;
}

OutputStream CutIntoBytes(const OutputStream& stream) {
  std::vector<size_t> places;
  for (size_t at = 1; at < TextSize(stream); ++at) places.push_back(at);
  return CutAtAll(stream, places);
}

OutputStream CutAt(const OutputStream& stream, size_t at) {
  return CutAtAll(stream, {at});
}

OutputStream CutAtRandom(const OutputStream& stream, std::mt19937_64& random) {
  std::vector<size_t> places;
  const size_t longest = 1 + random() % 40;
  for (size_t at = 1 + random() % longest; at < TextSize(stream);
       at += 1 + random() % longest) {
    places.push_back(at);
  }
  return CutAtAll(stream, places);
}

std::string Show(const OutputEvents& events) {
  std::string shown;
  const auto next = [&shown](const std::string& text) {
    if (!shown.empty()) shown += ' ';
    shown += text;
  };
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        next("text[" + event.text + "]");
        break;
      case OutputEvent::Kind::kReasoning:
        next("think[" + event.text + "]");
        break;
      case OutputEvent::Kind::kCallBegin:
        next(event.text + "[...");
        break;
      case OutputEvent::Kind::kArguments:
        shown.insert(shown.size() - 3, event.text);
        break;
      case OutputEvent::Kind::kCallEnd:
        shown.replace(shown.size() - 3, 3, "]");
        break;
    }
  }
  return shown;
}

std::string Told(const OutputFormat& format, const OutputRequest& request,
                 const OutputStream& stream, OutputEnd end) {
  const size_t size = std::max<size_t>(TextSize(stream), 1);
  const auto parsers = NewOutputParsers(format, HarmonyTokenizer().vocabulary(),
                                        request, size + 1);
  const OutputEvents whole = EventsOf(*parsers[0], stream, end);
  const std::string shown = Show(whole);
  EXPECT_EQ(Show(EventsOf(*parsers[size], CutIntoBytes(stream), end)), shown)
      << "in bytes";
  for (size_t at = 1; at < size; ++at) {
    const auto cut = EventsOf(*parsers[at], CutAt(stream, at), end);
    EXPECT_EQ(Show(cut), shown) << "cut at byte " << at;
    EXPECT_TRUE(cut == whole) << "cut at byte " << at;
  }
  std::mt19937_64 random(size);
  constexpr size_t kCuts = 8;
  std::vector<OutputStream> streams;
  for (size_t i = 0; i < kCuts; ++i) {
    streams.push_back(CutAtRandom(stream, random));
  }
  for (const OutputEvents& cut : ParseStreams(format, request, streams, end)) {
    EXPECT_EQ(Show(cut), shown) << "cut at random";
  }
  return shown;
}

OutputRequest WithTools() {
  OutputRequest request;
  request.tools = {
      {"get_weather",
       R"({"type": "object", "properties": {"city": {"type": "string"},
           "days": {"type": "integer"}}, "required": ["city"]})"},
      {"get_current_time", R"({"type": "object", "properties": {}})"},
      {"search",
       R"({"type": "object", "properties": {
           "query": {"type": "string"}, "limit": {"type": "integer"},
           "deep": {"type": "boolean"}, "tags": {"type": "array"},
           "options": {"$ref": "#/$defs/Options"},
           "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
           "note": {"type": ["string", "null"]}},
           "$defs": {"Options": {"properties": {}}}})"},
      {"write_file",
       R"({"properties": {"path": {"type": "string"},
           "content": {"enum": ["a", "b"]}}})"},
      {"mcp__gmail-cleanup__list_filters",
       R"({"properties": {"label": {"type": "string"}}})"},
      {"free", ""}};
  return request;
}

OutputRequest WithoutTools() { return {}; }

OutputRequest InReasoning() {
  OutputRequest request = WithTools();
  request.in_reasoning = true;
  return request;
}

std::string Glm(std::string_view text, OutputEnd end) {
  return Told(kGlm, WithTools(), AsText(text), end);
}

std::string Harmony(std::string_view text, OutputEnd end) {
  return Told(kHarmony, WithTools(), AsHarmony(text), end);
}

}  // namespace sluice::testing
