#include "services/gateway/trace/trace_json.h"

#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace sluice::gateway {
namespace {

double Micros(int64_t ns) { return static_cast<double>(ns) / 1000; }

Json PartJson(const TracePart& part, int64_t origin_ns) {
  return {{"part", part.name},
          {"where", PlaceName(part.place)},
          {"start_us", Micros(part.start_ns - origin_ns)},
          {"stop_us", Micros(part.stop_ns - origin_ns)}};
}

Json TokenJson(const TokenPath& token, int64_t index, int64_t origin_ns) {
  Json parts = Json::array();
  Json beside = Json::array();
  for (size_t i = 0; i < token.parts.size(); ++i) {
    Json part = PartJson(token.parts[i], origin_ns);
    if (i >= token.num_on_path) part["beside_next"] = true;
    parts.push_back(std::move(part));
  }
  for (const TracePart& part : token.beside) {
    beside.push_back(PartJson(part, origin_ns));
  }
  const int64_t wall = token.parts.empty() ? 0
                                           : token.parts.back().stop_ns -
                                                 token.parts.front().start_ns;
  Json json = {{"index", index},
               {"tokens", token.num_tokens},
               {"wall_us", Micros(wall)},
               {"parts", std::move(parts)}};
  if (!beside.empty()) json["overlapped_steps"] = std::move(beside);
  return json;
}

// Sums over the path, in the order in which the parts first appear.
Json SummaryJson(const ChoicePath& path) {
  struct Sum {
    std::string_view name;
    TracePlace place;
    int64_t count = 0;
    int64_t ns = 0;
  };
  std::vector<Sum> sums;
  for (const TokenPath& token : path.tokens) {
    for (size_t i = 0; i < token.num_on_path; ++i) {
      const TracePart& part = token.parts[i];
      size_t at = 0;
      while (at < sums.size() &&
             (sums[at].name != part.name || !(sums[at].place == part.place))) {
        ++at;
      }
      if (at == sums.size()) sums.push_back({part.name, part.place});
      ++sums[at].count;
      sums[at].ns += part.stop_ns - part.start_ns;
    }
  }
  Json json = Json::array();
  for (const Sum& sum : sums) {
    json.push_back({{"part", sum.name},
                    {"where", PlaceName(sum.place)},
                    {"count", sum.count},
                    {"total_us", Micros(sum.ns)}});
  }
  return json;
}

Json ChoiceJson(const TraceRecord& record, size_t choice) {
  const ChoicePath path = MakePath(record, choice);
  Json tokens = Json::array();
  int64_t index = 0;
  for (const TokenPath& token : path.tokens) {
    tokens.push_back(TokenJson(token, index, record.begin_ns()));
    index += token.num_tokens;
  }
  return {{"index", choice},
          {"wall_us", Micros(path.wall_ns())},
          {"sum_us", Micros(path.sum_ns())},
          {"summary", SummaryJson(path)},
          {"tokens", std::move(tokens)}};
}

Json StagesJson(const TraceRecord& record) {
  Json stages = Json::array();
  for (const TraceRecord::Stage& stage : record.stages) {
    stages.push_back({{"address", stage.address},
                      {"first_layer", stage.first_layer},
                      {"last_layer", stage.last_layer - 1},
                      {"rtt_us", Micros(stage.rtt_ns)},
                      {"clock_offset_us", Micros(stage.clock_offset_ns)},
                      {"clock_error_us", Micros(stage.clock_error_ns)}});
  }
  return stages;
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
  Json choices = Json::array();
  for (size_t i = 0; i < record.choices.size(); ++i) {
    choices.push_back(ChoiceJson(record, i));
  }
  const int64_t wall = record.end_ns() - record.begin_ns();
  return DumpJson({{"request_id", record.request_id},
                   {"arrival_unix_us", record.arrival_unix_us},
                   {"wall_us", Micros(wall)},
                   {"truncated", record.truncated},
                   {"stages", StagesJson(record)},
                   {"choices", std::move(choices)}});
}

}  // namespace sluice::gateway
