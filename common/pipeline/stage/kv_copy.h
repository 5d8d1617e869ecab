#ifndef SLUICE_COMMON_PIPELINE_STAGE_KV_COPY_H_
#define SLUICE_COMMON_PIPELINE_STAGE_KV_COPY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/pipeline/stage/epoch_links.h"
#include "common/pipeline/stage/kv_source.h"
#include "common/rpc/transport_options.h"
#include "common/wire/stage.h"

namespace sluice {

class BlocksLink;

// Who has the keys and values of a place's layers, and in which epoch.
struct KvDonors {
  struct Donor {
    std::string address;  // empty: this stage's shelf
    StagePlace layers;
  };
  std::vector<Donor> donors;  // none: there is nothing to copy
  Epoch epoch;
  std::string secret;
};

// What became of a copy.
struct KvCopied {
  Status status;
  uint64_t bytes = 0;
};

// Copies keys and values to the runner of a stage, donor by donor, and tells
// how it ended. Any thread; holds references to itself until then.
class KvCopy : public std::enable_shared_from_this<KvCopy> {
 public:
  struct Target {
    EpochLinks* links = nullptr;  // to the runner, while `owner` lives
    std::weak_ptr<const void> owner;
    StageIdentity identity;  // donors need the same model and numerics
    std::shared_ptr<const KvShelf> shelf;  // this stage's; null: none
    rpc::TransportOptions transport;
  };
  using Done = std::function<void(const KvCopied& copied)>;

  // `done` comes once, unless Cancel comes before.
  KvCopy(Target target, KvDonors donors, Done done);
  void Start() { Next(); }
  // Ends the copy if it takes too long at `now`, or nothing has come for a
  // while. To be called time and again.
  void Watch(TimePoint now);
  // Nothing is written any more once this returns, but for what the runner
  // does now.
  void Cancel();

 private:
  friend class BlocksLink;

  // Begins with the next donor, or ends.
  void Next();
  void ReadShelf(const std::shared_ptr<KvSource>& source,
                 const StagePlace& layers);
  // `most_bytes`: of an entry.
  void Open(const KvDonors::Donor& donor, size_t most_bytes);
  // Does `work` between steps, unless the copy has ended. Its error ends it.
  void Between(std::function<Status(KvStore& store)> work);
  // Writes the entries between steps, and then does `then`. An entry of other
  // layers than the donor's `layers` ends the copy.
  void Write(std::vector<KvEntry> entries, const StagePlace& layers,
             std::function<void()> then);
  Status WriteNow(const std::vector<KvEntry>& entries, const StagePlace& layers,
                  KvStore& store);
  void End(const Status& status);
  bool ended() const;
  std::string HelloTo(const KvDonors::Donor& donor) const;

  const Target target_;
  const KvDonors donors_;
  mutable Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);  // null: over
  std::shared_ptr<BlocksLink> link_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  const TimePoint begun_ = Clock::now();
  TimePoint moved_ ABSL_GUARDED_BY(mutex_) = begun_;  // on, at the latest
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;           // donor
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_KV_COPY_H_
