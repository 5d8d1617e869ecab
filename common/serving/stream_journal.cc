#include "common/serving/stream_journal.h"

#include <algorithm>

#include "common/metrics/metric_names.h"
#include "common/metrics/metrics.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

// Of an entry's list and map nodes, and of its strings' blocks.
constexpr size_t kEntryMemory = 512;
constexpr size_t kLargestShare = 8;
constexpr size_t kTenantShare = 2;

}  // namespace

size_t StreamRequest::memory() const {
  // The key is kept twice, beside the entry.
  return kEntryMemory + 3 * (request_id.size() + tenant.size()) + path.size() +
         body.size() + first_event_id.size();
}

void StreamJournal::Add(const Entry& request) {
  if (Keep(request) && on_new_) on_new_(request);
}

void StreamJournal::Insert(Entry request) {
  if (IsRecent(*request)) Keep(request);
}

bool StreamJournal::Keep(const Entry& request) {
  const size_t bytes = request->memory();
  MutexLock lock(mutex_);
  Expire();
  Key key(request->tenant, request->request_id);
  if (const auto older = by_key_.find(key); older != by_key_.end()) {
    // The id tells origin and fingerprint: the body may be spelled otherwise.
    const StreamRequest& kept = *older->second->second.entry;
    if (kept.first_event_id == request->first_event_id) return false;
    Erase(older->second);
  }
  if (options_.max_bytes == 0) return true;
  if (bytes > options_.max_bytes / kLargestShare) {
    ++figures_.too_large;
    return true;
  }
  while (figures_.bytes + bytes > options_.max_bytes) {
    ++figures_.crowded_out;
    Erase(FirstToGo(request->tenant));
  }
  const auto entry =
      entries_.emplace_hint(entries_.end(), ++num_kept_, Kept{key, request});
  by_key_.emplace(std::move(key), entry);
  ++figures_.streams;
  figures_.bytes += bytes;
  tenant_bytes_[request->tenant] += bytes;
  return true;
}

std::vector<StreamJournal::Entry> StreamJournal::KeptAfter(uint64_t& after,
                                                           size_t bytes) {
  MutexLock lock(mutex_);
  Expire();
  std::vector<Entry> kept;
  for (auto next = entries_.upper_bound(after); next != entries_.end();
       ++next) {
    const Entry& entry = next->second.entry;
    if (!IsRecent(*entry)) continue;
    const size_t size = entry->memory();
    if (!kept.empty() && size > bytes) break;
    bytes -= std::min(size, bytes);
    after = next->first;
    kept.push_back(entry);
  }
  return kept;
}

void StreamJournal::DropOld() {
  MutexLock lock(mutex_);
  Expire();
}

StatusOr<StreamJournal::Entry> StreamJournal::Find(std::string_view request_id,
                                                   std::string_view tenant) {
  MutexLock lock(mutex_);
  Expire();
  const auto found =
      by_key_.find(Key(std::string(tenant), std::string(request_id)));
  if (found != by_key_.end() && IsRecent(*found->second->second.entry)) {
    return found->second->second.entry;
  }
  if (options_.max_bytes == 0) {
    return WithCode(
        NotFound("no streams are kept here (--stream-journal-mb 0): send the "
                 "request again with Last-Event-ID"),
        "stream_not_found");
  }
  return WithCode(
      NotFound(
          "there is no stream of request \"", request_id.substr(0, 200),
          "\" of this key: it is unknown, older than ",
          std::chrono::duration_cast<std::chrono::seconds>(options_.max_age)
              .count(),
          " s, or crowded out; send the request again with "
          "Last-Event-ID"),
      "stream_not_found");
}

StreamJournal::Figures StreamJournal::figures() {
  MutexLock lock(mutex_);
  Expire();
  return figures_;
}

void StreamJournal::Erase(Entries::iterator entry) {
  const Kept& kept = entry->second;
  const size_t bytes = kept.entry->memory();
  --figures_.streams;
  figures_.bytes -= bytes;
  const auto tenant = tenant_bytes_.find(kept.key.first);
  tenant->second -= bytes;
  if (tenant->second == 0) tenant_bytes_.erase(tenant);
  by_key_.erase(kept.key);
  entries_.erase(entry);
}

StreamJournal::Entries::iterator StreamJournal::FirstToGo(
    const std::string& tenant) {
  const auto held = tenant_bytes_.find(tenant);
  if (held == tenant_bytes_.end() ||
      held->second <= options_.max_bytes / kTenantShare) {
    return entries_.begin();
  }
  return std::ranges::find_if(entries_, [&tenant](const auto& entry) {
    return entry.second.key.first == tenant;
  });
}

bool StreamJournal::IsRecent(const StreamRequest& request) const {
  return request.arrival >= Clock::now() - options_.max_age;
}

// A request of another gateway may be older than those before it.
void StreamJournal::Expire() {
  while (!entries_.empty() && !IsRecent(*entries_.begin()->second.entry)) {
    Erase(entries_.begin());
  }
}

void AddStreamJournalSeries(metrics::Registry& registry,
                            StreamJournal& journal) {
  namespace names = metrics::names;
  const metrics::Gauge streams =
      registry.AddGauge(names::kGatewayJournalStreams,
                        "Requests of recent streams that are kept");
  const metrics::Gauge bytes =
      registry.AddGauge(names::kGatewayJournalBytes, "Bytes that they take");
  const auto add = [&registry](const char* reason) {
    return registry.AddCounter(
        names::kGatewayJournalDropped,
        "Requests of streams that were not kept, or not for their time",
        {{"reason", reason}});
  };
  const metrics::Counter crowded_out = add("crowded_out");
  const metrics::Counter too_large = add("too_large");
  registry.OnScrape([=, &journal] {
    const StreamJournal::Figures now = journal.figures();
    streams.Set(static_cast<double>(now.streams));
    bytes.Set(static_cast<double>(now.bytes));
    crowded_out.AdvanceTo(static_cast<double>(now.crowded_out));
    too_large.AdvanceTo(static_cast<double>(now.too_large));
  });
}

}  // namespace sluice::serving
