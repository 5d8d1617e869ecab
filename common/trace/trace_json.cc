#include "common/trace/trace_json.h"

#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace sluice::trace {
namespace {

// JSON text, written straight away: a long answer's trace has 100,000 parts.
class Writer {
 public:
  Writer& Raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  Writer& Number(int64_t value) { return Raw(std::to_string(value)); }
  Writer& Flag(bool value) { return Raw(value ? "true" : "false"); }
  Writer& Micros(int64_t ns) {
    char text[48];
    std::snprintf(text, sizeof(text), "%.3f", static_cast<double>(ns) / 1000);
    return Raw(text);
  }
  Writer& String(const std::string& value) {
    return Raw(DumpJson(Json(value)));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void WritePart(const TracePart& part, int64_t origin_ns, bool beside_next,
               Writer& out) {
  out.Raw("{\"part\":\"").Raw(part.name).Raw("\",\"where\":\"");
  out.Raw(PlaceName(part.place)).Raw("\",\"start_us\":");
  out.Micros(part.start_ns - origin_ns).Raw(",\"stop_us\":");
  out.Micros(part.stop_ns - origin_ns);
  out.Raw(beside_next ? ",\"beside_next\":true}" : "}");
}

void WriteToken(const TokenPath& token, int64_t index, int64_t origin_ns,
                Writer& out) {
  const int64_t wall = token.parts.empty() ? 0
                                           : token.parts.back().stop_ns -
                                                 token.parts.front().start_ns;
  out.Raw("{\"index\":").Number(index);
  out.Raw(",\"tokens\":").Number(token.num_tokens);
  if (token.incomplete) out.Raw(",\"incomplete\":true");
  out.Raw(",\"wall_us\":").Micros(wall).Raw(",\"parts\":[");
  for (size_t i = 0; i < token.parts.size(); ++i) {
    if (i > 0) out.Raw(",");
    WritePart(token.parts[i], origin_ns, i >= token.num_on_path, out);
  }
  out.Raw("]");
  if (!token.beside.empty()) {
    out.Raw(",\"overlapped_steps\":[");
    for (size_t i = 0; i < token.beside.size(); ++i) {
      if (i > 0) out.Raw(",");
      WritePart(token.beside[i], origin_ns, false, out);
    }
    out.Raw("]");
  }
  out.Raw("}");
}

// Sums over the path, in the order in which the parts first appear.
void WriteSummary(const ChoicePath& path, Writer& out) {
  struct Sum {
    const TracePart* part = nullptr;
    int64_t count = 0;
    int64_t ns = 0;
  };
  std::vector<Sum> sums;
  std::map<std::tuple<std::string_view, int, int>, size_t> places;
  for (const TokenPath& token : path.tokens) {
    for (size_t i = 0; i < token.num_on_path; ++i) {
      const TracePart& part = token.parts[i];
      const auto [at, is_new] = places.try_emplace(
          {part.name, part.place.kind, part.place.index}, sums.size());
      if (is_new) sums.push_back({&part});
      ++sums[at->second].count;
      sums[at->second].ns += part.stop_ns - part.start_ns;
    }
  }
  std::string_view separator;
  for (const Sum& sum : sums) {
    out.Raw(separator).Raw("{\"part\":\"").Raw(sum.part->name);
    out.Raw("\",\"where\":\"").Raw(PlaceName(sum.part->place));
    out.Raw("\",\"count\":").Number(sum.count);
    out.Raw(",\"total_us\":").Micros(sum.ns).Raw("}");
    separator = ",";
  }
}

void WriteChoice(const TraceRecord& record, size_t choice, Writer& out) {
  const ChoicePath path = MakePath(record, choice);
  out.Raw("{\"index\":").Number(static_cast<int64_t>(choice));
  out.Raw(",\"wall_us\":").Micros(path.wall_ns());
  out.Raw(",\"sum_us\":").Micros(path.sum_ns());
  out.Raw(",\"truncated\":").Flag(record.choices[choice].truncated);
  out.Raw(",\"incomplete_tokens\":").Number(path.num_incomplete());
  out.Raw(",\"summary\":[");
  WriteSummary(path, out);
  out.Raw("],\"tokens\":[");
  int64_t index = 0;
  for (const TokenPath& token : path.tokens) {
    if (&token != path.tokens.data()) out.Raw(",");
    WriteToken(token, index, record.begin_ns(), out);
    index += token.num_tokens;
  }
  out.Raw("]}");
}

void WriteStage(const TraceRecord::Stage& stage, Writer& out) {
  out.Raw("{\"address\":").String(stage.address);
  out.Raw(",\"first_layer\":").Number(stage.place.first_layer);
  out.Raw(",\"last_layer\":").Number(stage.place.last_layer - 1);
  out.Raw(",\"rtt_us\":").Micros(stage.clock.rtt_ns);
  out.Raw(",\"clock_offset_us\":").Micros(stage.clock.offset_ns);
  out.Raw(",\"clock_error_us\":").Micros(stage.clock.error_ns).Raw("}");
}

}  // namespace

std::string PlaceName(const TracePlace& place) {
  switch (place.kind) {
    case TracePlace::kHop:
      return Cat("hop ", place.index);
    case TracePlace::kStage:
      return Cat("stage ", place.index);
    default:
      return "gateway";
  }
}

std::string TraceJson(const TraceRecord& record) {
  Writer out;
  out.Raw("{\"request_id\":").String(record.request_id);
  out.Raw(",\"arrival_unix_us\":").Number(record.arrival_unix_us);
  out.Raw(",\"wall_us\":").Micros(record.end_ns() - record.begin_ns());
  out.Raw(",\"truncated\":").Flag(record.truncated);
  out.Raw(",\"stages\":[");
  for (size_t i = 0; i < record.stages.size(); ++i) {
    if (i > 0) out.Raw(",");
    WriteStage(record.stages[i], out);
  }
  out.Raw("],\"choices\":[");
  for (size_t i = 0; i < record.choices.size(); ++i) {
    if (i > 0) out.Raw(",");
    WriteChoice(record, i, out);
  }
  out.Raw("]}");
  return out.Take();
}

}  // namespace sluice::trace
