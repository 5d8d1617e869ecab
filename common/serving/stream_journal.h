#ifndef SLUICE_COMMON_SERVING_STREAM_JOURNAL_H_
#define SLUICE_COMMON_SERVING_STREAM_JOURNAL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace sluice::metrics {
class Registry;
}  // namespace sluice::metrics

namespace sluice::serving {

// What asked for a stream: with it, and the id of any of its events, any
// gateway of the same model gives the same answer.
struct StreamRequest {
  std::string request_id;
  std::string tenant;  // the API key's name; empty without keys
  std::string path;    // an endpoint
  std::string body;
  std::string first_event_id;  // the id of a client that has no event yet
  TimePoint arrival = Clock::now();

  // Returns the bytes in memory, estimated.
  size_t memory() const;
};

// The requests of recent streams, by request id and API key, of a bounded size
// and age. Of several requests with one id and key the latest stays; the same
// request again changes nothing. Any thread.
class StreamJournal {
 public:
  struct Options {
    // Of all requests together; 0: none is kept. One that takes more than an
    // eighth is not kept. The oldest make room; a key that has more than half
    // makes its own.
    size_t max_bytes = size_t{64} << 20;
    Duration max_age = std::chrono::minutes(10);
  };
  using Entry = std::shared_ptr<const StreamRequest>;
  // Takes a request that this gateway begins to answer; kept or not. Any
  // thread, holding no lock.
  using OnNewStream = std::function<void(const Entry& request)>;

  explicit StreamJournal(const Options& options, OnNewStream on_new = nullptr)
      : options_(options), on_new_(std::move(on_new)) {}

  // Keeps a request of this gateway, and tells OnNewStream of it, unless it is
  // here: a stream that is resumed is kept for the time of its first request.
  void Add(const Entry& request);
  // Keeps a request that another gateway answers.
  void Insert(Entry request);

  // Returns the requests that were kept after the first `after` ones, in that
  // order: one, and more up to `bytes` of them together. Sets `after` for the
  // next call. Of both calls above; those that are gone are left out.
  std::vector<Entry> KeptAfter(uint64_t& after, size_t bytes);

  // Forgets the requests above max_age; the calls above do, too.
  void DropOld();

  // NOT_FOUND if no stream of that id and key is kept.
  StatusOr<Entry> Find(std::string_view request_id, std::string_view tenant);

  struct Figures {
    size_t streams = 0;
    size_t bytes = 0;
    // Requests that left before their time, for want of room, or that never
    // were kept.
    uint64_t crowded_out = 0;
    uint64_t too_large = 0;
  };
  Figures figures();

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, request id
  struct Kept {
    Key key;
    Entry entry;
  };
  // By number of all that were kept.
  using Entries = std::map<uint64_t, Kept>;

  // False: the same request is here.
  bool Keep(const Entry& request);
  // Returns the entry that makes room for one of `tenant`. There is one.
  Entries::iterator FirstToGo(const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsRecent(const StreamRequest& request) const;
  void Erase(Entries::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const OnNewStream on_new_;
  Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> tenant_bytes_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_kept_ ABSL_GUARDED_BY(mutex_) = 0;
  Figures figures_ ABSL_GUARDED_BY(mutex_);
};

// Adds the journal's series. `journal` outlives the registry's scrapes.
void AddStreamJournalSeries(metrics::Registry& registry,
                            StreamJournal& journal);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_STREAM_JOURNAL_H_
