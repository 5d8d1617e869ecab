#include "common/trace/trace_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unordered_set>
#include <utility>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/trace/chrome_trace.h"

namespace sluice::trace {
namespace {

// Of traces that are not kept for their size: so many are known by name.
constexpr size_t kMaxTooLarge = 64;

// About what a record takes in memory. Choices share steps.
size_t Bytes(const TraceRecord& record) {
  size_t bytes =
      sizeof(record) + record.blocks.size() * sizeof(record.blocks[0]);
  std::unordered_set<const StepTrace*> counted;
  for (const TraceRecord::Choice& choice : record.choices) {
    bytes += sizeof(choice);
    bytes += choice.deliveries.size() * sizeof(TraceRecord::Delivery);
    for (const TraceRecord::Step& step : choice.steps) {
      bytes += sizeof(step);
      if (!counted.insert(step.trace.get()).second) continue;
      bytes += sizeof(StepTrace);
      bytes += step.trace->stages.size() * sizeof(StageTrace);
      bytes += step.trace->chunks.size() * sizeof(TracedChunk);
    }
  }
  return bytes;
}

}  // namespace

Status Validate(const TraceOptions& options) {
  if (!(options.sample >= 0 && options.sample <= 1)) {
    return InvalidArgument(
        "the share of sampled traces must be between 0 and "
        "1, got ",
        options.sample);
  }
  std::error_code ignored;
  if (!options.folder.empty() &&
      !std::filesystem::is_directory(options.folder, ignored)) {
    return InvalidArgument("the folder for traces does not exist: ",
                           options.folder);
  }
  return OkStatus();
}

TraceStore::TraceStore(TraceOptions options, Stages stages,
                       TraceExport exported)
    : options_(std::move(options)),
      stages_(std::move(stages)),
      export_(std::move(exported)) {
  if (options_.folder.empty()) return;
  writer_ = NamedThread("trace-0", [this] { RunWriter(); });
}

TraceStore::~TraceStore() { Stop(); }

void TraceStore::Stop() {
  to_write_.Close();
  writer_.Join();
}

bool TraceStore::Wanted(std::string_view header) const {
  if (!header.empty()) return header == "1" || header == "true";
  if (options_.sample <= 0) return false;
  constexpr double kUnit = 0x1p-53;  // of 53 bits in [0, 1)
  return static_cast<double>(RandomBits() >> 11) * kUnit < options_.sample;
}

std::shared_ptr<RequestTrace> TraceStore::Begin(std::string_view header,
                                                http::Exchange& exchange) {
  const http::HttpRequest& request = exchange.request();
  const bool keep = Wanted(header);
  const bool wanted = keep || (header.empty() && export_.wants &&
                               export_.wants(request.traceparent));
  if (!wanted) return nullptr;
  auto trace = std::make_shared<RequestTrace>(
      request.request_id, request.tenant, request.arrival,
      [this, keep](TraceRecord record) { Finish(std::move(record), keep); });
  trace->OnRequest(request);
  exchange.Observe(trace);
  return trace;
}

void TraceStore::Finish(TraceRecord record, bool keep) {
  record.stages = stages_();
  const size_t bytes = Bytes(record);
  const auto done = std::make_shared<const TraceRecord>(std::move(record));
  if (keep) Keep(done, bytes);
  if (export_.take) export_.take(done, bytes);
}

void TraceStore::Keep(const std::shared_ptr<const TraceRecord>& kept,
                      size_t bytes) {
  bool write = false;
  {
    MutexLock lock(mutex_);
    if (bytes > options_.max_bytes) {
      too_large_.push_back({kept->request_id, kept->tenant, bytes});
      if (too_large_.size() > kMaxTooLarge) too_large_.pop_front();
    } else {
      kept_.push_back({kept, bytes});
      bytes_ += bytes;
    }
    while (bytes_ > options_.max_bytes) {
      bytes_ -= kept_.front().bytes;
      kept_.pop_front();
    }
    write = !options_.folder.empty() && writes_;
  }
  if (!write) return;
  const Status pushed = to_write_.Push(kept);
  if (!pushed.ok()) {
    LogWarning("trace of request ", kept->request_id,
               " is not written: ", Message(pushed));
  }
}

void TraceStore::RunWriter() {
  while (const auto record = to_write_.Pop()) {
    const Status done = CatchExceptions("trace", [&] { Write(**record); });
    if (!done.ok()) LogError("a trace is not written: ", Message(done));
  }
}

void TraceStore::Write(const TraceRecord& record) {
  const std::string text = ChromeTrace(record);
  if (files_ >= options_.max_files ||
      text.size() > options_.max_file_bytes - file_bytes_) {
    MutexLock lock(mutex_);
    if (!std::exchange(writes_, false)) return;
    LogWarning("traces: ", files_, " files of ", file_bytes_,
               " bytes are written; no more of this run");
    return;
  }
  if (!WriteFile(record.request_id, text)) {
    LogWarning("the trace of request ", record.request_id,
               " cannot be written to ", options_.folder);
    return;
  }
  ++files_;
  file_bytes_ += text.size();
}

// Whole or not at all; a link, other than a rename, replaces nothing. No id
// has a ~.
bool TraceStore::WriteFile(const std::string& request_id,
                           const std::string& text) {
  const std::string base =
      (std::filesystem::path(options_.folder) / request_id).string();
  const std::string draft = Cat(base, "~", getpid(), ".tmp");
  std::ofstream out(draft);
  out << text;
  out.close();
  bool linked = false;
  if (out) {
    std::string path = base + ".json";
    while (!(linked = link(draft.c_str(), path.c_str()) == 0) &&
           errno == EEXIST) {
      path = Cat(base, "~", next_suffix_++, ".json");
    }
  }
  std::remove(draft.c_str());
  return linked;
}

StatusOr<std::shared_ptr<const TraceRecord>> TraceStore::Find(
    std::string_view request_id, std::string_view tenant) const {
  MutexLock lock(mutex_);
  for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) {
    if (it->record->request_id == request_id && it->record->tenant == tenant) {
      return it->record;
    }
  }
  for (const TooLarge& other : too_large_) {
    if (other.request_id == request_id && other.tenant == tenant) {
      return NotFound("The trace of request ", request_id,
                      " is not kept: it has ", other.bytes,
                      " bytes, more than the ", options_.max_bytes,
                      " for all traces");
    }
  }
  return NotFound("There is no trace of request ", request_id,
                  ": it was not traced, is not answered to the end, or gave "
                  "way to later ones");
}

std::vector<std::string> TraceStore::RequestIds(std::string_view tenant) const {
  MutexLock lock(mutex_);
  std::vector<std::string> ids;
  for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) {
    if (it->record->tenant == tenant) ids.push_back(it->record->request_id);
  }
  return ids;
}

}  // namespace sluice::trace
