#include "services/gateway/trace/trace_store.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "common/base/log.h"
#include "services/gateway/trace/chrome_trace.h"

namespace sluice::gateway {
namespace {

// Traces that wait to be written; more than that are not.
constexpr size_t kMaxQueuedFiles = 64;

// About what a record takes in memory. Steps are shared among choices at most.
size_t Bytes(const TraceRecord& record) {
  size_t bytes =
      sizeof(record) + record.blocks.size() * sizeof(record.blocks[0]);
  for (const TraceRecord::Choice& choice : record.choices) {
    bytes += sizeof(choice);
    bytes += choice.deliveries.size() * sizeof(TraceRecord::Delivery);
    for (const TraceRecord::Step& step : choice.steps) {
      bytes += sizeof(step) + sizeof(StepTrace);
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

TraceStore::TraceStore(TraceOptions options, Stages stages)
    : options_(std::move(options)), stages_(std::move(stages)) {
  if (!options_.folder.empty()) {
    writer_ = std::make_unique<WorkQueue>("trace", 1, kMaxQueuedFiles);
  }
}

TraceStore::~TraceStore() { Stop(); }

void TraceStore::Stop() {
  if (writer_ != nullptr) writer_->Stop();
}

bool TraceStore::Wanted(std::string_view header) const {
  if (!header.empty()) return header == "1" || header == "true";
  if (options_.sample <= 0) return false;
  thread_local std::mt19937 random{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(random) < options_.sample;
}

std::shared_ptr<RequestTrace> TraceStore::Begin(std::string_view header,
                                                Exchange& exchange) {
  if (!Wanted(header)) return nullptr;
  const HttpRequest& request = exchange.request();
  auto trace = std::make_shared<RequestTrace>(
      request.request_id, request.arrival,
      [this](TraceRecord record) { Keep(std::move(record)); });
  exchange.Observe(trace);
  return trace;
}

void TraceStore::Keep(TraceRecord record) {
  record.stages = stages_();
  const size_t bytes = Bytes(record);
  auto kept = std::make_shared<const TraceRecord>(std::move(record));
  bool write = false;
  {
    MutexLock lock(mutex_);
    kept_.push_back({kept, bytes});
    bytes_ += bytes;
    while (bytes_ > options_.max_bytes && kept_.size() > 1) {
      bytes_ -= kept_.front().bytes;
      kept_.pop_front();
    }
    write = writer_ != nullptr && files_ < options_.max_files;
    if (write && ++files_ == options_.max_files) {
      LogWarning("traces: ", files_, " files are written; no more of this run");
    }
  }
  if (!write) return;
  const Status pushed = writer_->Push([this, kept] { Write(*kept); });
  if (!pushed.ok()) {
    LogWarning("trace of request ", kept->request_id,
               " is not written: ", Message(pushed));
  }
}

// Whole or not at all.
void TraceStore::Write(const TraceRecord& record) {
  const std::filesystem::path path =
      std::filesystem::path(options_.folder) / (record.request_id + ".json");
  const std::string draft = path.string() + ".tmp";
  std::ofstream out(draft);
  out << ChromeTrace(record);
  out.close();
  if (!out || std::rename(draft.c_str(), path.c_str()) != 0) {
    LogWarning("the trace ", path.string(), " cannot be written");
  }
}

std::shared_ptr<const TraceRecord> TraceStore::Find(
    std::string_view request_id) const {
  MutexLock lock(mutex_);
  for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) {
    if (it->record->request_id == request_id) return it->record;
  }
  return nullptr;
}

std::vector<std::string> TraceStore::RequestIds() const {
  MutexLock lock(mutex_);
  std::vector<std::string> ids;
  for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) {
    ids.push_back(it->record->request_id);
  }
  return ids;
}

}  // namespace sluice::gateway
