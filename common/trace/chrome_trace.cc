#include "common/trace/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_path.h"

namespace sluice::trace {
namespace {

constexpr int kGatewayProcess = 1;
constexpr int kWireProcess = 2;
constexpr int kFirstStageProcess = 10;

struct Slice {
  std::string name;
  int64_t start_ns = 0;
  int64_t stop_ns = 0;
  int depth = 0;     // of slices that begin and end together, the outer is less
  std::string args;  // a JSON object, or empty
};

// A named row of slices in a process.
struct Track {
  int process = 0;
  std::string name;
  auto operator<=>(const Track&) const = default;
};

bool IsWait(std::string_view name) {
  return name.ends_with("wait") || name == "queue" || name == "inbox";
}

// Where a part is shown beside the path. Waits have rows of their own: they
// overlap each other.
Track TrackOf(const TracePart& part) {
  const int index = part.place.index;
  if (part.place.kind == TracePlace::kHop) {
    return {kWireProcess, Cat("hop ", index)};
  }
  if (part.place.kind == TracePlace::kStage) {
    const char* name = part.name == "wait" ? "queue"
                       : part.name == "compute" || part.name == "sample"
                           ? "compute"
                           : "network";
    return {kFirstStageProcess + index, name};
  }
  if (IsWait(part.name)) return {kGatewayProcess, "waits"};
  for (const std::string_view engine :
       {"plan", "serialise", "commit", "emit"}) {
    if (part.name == engine) return {kGatewayProcess, "engine"};
  }
  if (part.name == "receive") return {kGatewayProcess, "results"};
  return {kGatewayProcess, part.name == "write" ? "write" : "loop"};
}

// Slices by track, each track's in rows where they nest.
class Timeline {
 public:
  void Add(const Track& track, Slice slice) {
    tracks_[track].push_back(std::move(slice));
  }

  // The events, with the tracks' and processes' names.
  std::string Text(const TraceRecord& record) {
    NameProcesses(record);
    for (auto& [track, slices] : tracks_) Place(track, slices);
    return std::move(text_);
  }

 private:
  // The stops of the slices that are open in a row, outermost first.
  using Row = std::vector<int64_t>;

  static bool Fits(Row& row, const Slice& slice) {
    while (!row.empty() && row.back() <= slice.start_ns) row.pop_back();
    return row.empty() || row.back() >= slice.stop_ns;
  }

  void Place(const Track& track, std::vector<Slice>& slices) {
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Slice& a, const Slice& b) {
                       return std::tuple(a.start_ns, -a.stop_ns, a.depth) <
                              std::tuple(b.start_ns, -b.stop_ns, b.depth);
                     });
    std::vector<Row> rows;
    const int first_thread = next_thread_;
    for (const Slice& slice : slices) {
      size_t row = 0;
      while (row < rows.size() && !Fits(rows[row], slice)) ++row;
      if (row == rows.size()) {
        rows.emplace_back();
        Name("thread_name", track.process, next_thread_++, track.name);
      }
      rows[row].push_back(slice.stop_ns);
      Write(track.process, first_thread + static_cast<int>(row), slice);
    }
  }

  void NameProcesses(const TraceRecord& record) {
    Name("process_name", kGatewayProcess, 0, "gateway");
    Name("process_name", kWireProcess, 0, "wire");
    for (size_t i = 0; i < record.stages.size(); ++i) {
      const TraceRecord::Stage& stage = record.stages[i];
      Name("process_name", kFirstStageProcess + static_cast<int>(i), 0,
           Cat("stage ", i, " (", stage.address, ", layers ",
               stage.place.first_layer, " to ", stage.place.last_layer - 1,
               ")"));
    }
  }

  void Name(const char* what, int process, int thread,
            const std::string& name) {
    Separate();
    text_ += Cat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process,
                 ",\"tid\":", thread,
                 ",\"args\":{\"name\":", DumpJson(Json(name)), "}}");
  }

  void Write(int process, int thread, const Slice& slice) {
    Separate();
    char times[96];
    std::snprintf(times, sizeof(times), "\"ts\":%.3f,\"dur\":%.3f",
                  static_cast<double>(slice.start_ns) / 1000,
                  static_cast<double>(slice.stop_ns - slice.start_ns) / 1000);
    text_ += Cat("{\"ph\":\"X\",\"name\":", DumpJson(Json(slice.name)),
                 ",\"pid\":", process, ",\"tid\":", thread, ",", times);
    if (!slice.args.empty()) text_ += ",\"args\":" + slice.args;
    text_ += '}';
  }

  void Separate() {
    if (!text_.empty()) text_ += ",\n";
  }

  std::map<Track, std::vector<Slice>> tracks_;
  std::string text_;
  int next_thread_ = 1;
};

void AddChoice(const TraceRecord& record, size_t choice, Timeline& timeline) {
  const int64_t origin = record.begin_ns();
  const ChoicePath path = MakePath(record, choice);
  const Track tokens = {kGatewayProcess, Cat("choice ", choice)};
  const auto slice_of = [&](const TracePart& part) {
    Slice slice;
    slice.name = part.name;
    slice.start_ns = part.start_ns - origin;
    slice.stop_ns = part.stop_ns - origin;
    return slice;
  };
  int64_t index = 0;
  int64_t end = 0;
  for (const TokenPath& token : path.tokens) {
    if (token.num_on_path == 0) continue;
    Slice whole = slice_of(token.parts.front());
    whole.name = token.num_tokens > 0 ? Cat("token ", index) : "end";
    if (token.incomplete) whole.name += " (incomplete)";
    whole.stop_ns = token.parts[token.num_on_path - 1].stop_ns - origin;
    whole.depth = 1;
    end = std::max(end, whole.stop_ns);
    timeline.Add(tokens, std::move(whole));
    for (size_t i = 0; i < token.parts.size(); ++i) {
      Slice slice = slice_of(token.parts[i]);
      slice.args = Cat("{\"token\":", index, "}");
      timeline.Add(TrackOf(token.parts[i]), slice);
      if (i >= token.num_on_path) continue;
      slice.name += " (" + PlaceName(token.parts[i].place) + ")";
      slice.depth = 2;
      timeline.Add(tokens, std::move(slice));
    }
    for (const TracePart& part : token.beside) {
      timeline.Add(TrackOf(part), slice_of(part));
    }
    index += token.num_tokens;
  }
  if (end > 0) {
    timeline.Add(tokens, {Cat("request ", record.request_id), 0, end, 0, ""});
  }
}

}  // namespace

std::string ChromeTrace(const TraceRecord& record) {
  Timeline timeline;
  for (size_t i = 0; i < record.choices.size(); ++i) {
    AddChoice(record, i, timeline);
  }
  return Cat("{\"traceEvents\":[\n", timeline.Text(record),
             "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"request_id\":",
             DumpJson(Json(record.request_id)),
             ",\"arrival_unix_us\":", record.arrival_unix_us, "}}\n");
}

}  // namespace sluice::trace
