#ifndef SLUICE_COMMON_PIPELINE_STAGE_KV_SOURCE_H_
#define SLUICE_COMMON_PIPELINE_STAGE_KV_SOURCE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/kv_entry.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/stage/epoch_links.h"
#include "common/stage/kv_store.h"

namespace sluice {

// What a stage can give of an epoch's keys and values. A value.
struct KvOffer {
  Epoch epoch;         // whose plans left them; 0: there is none
  std::string secret;  // of that epoch
  // The layers that are gone from the stage are here; null: they are the
  // runner's.
  std::shared_ptr<const KvShelf> shelf = nullptr;
};

// What a stage can give to stages that take over its layers: the present
// epoch's, and for as long as this one has run no step the last one's. Not
// thread safe; its StageSession's.
class KvOffers {
 public:
  // `kept`: the present epoch goes on with the keys and values of the last one.
  // `donors`: the epoch whose keys and values move to this one; a shelf of
  // another one goes.
  void Begin(Epoch epoch, std::string secret, bool kept, Epoch donors);
  // The layers go, and with them all but what `shelf` has; null: all goes.
  void Unload(std::shared_ptr<const KvShelf> shelf);
  // The present epoch has run a step: the last one's are needed no more.
  void OnSteps() { last_ = KvOffer(); }
  void Clear() { *this = KvOffers(); }
  // Returns what there is of `epoch`. FAILED_PRECONDITION without any, or with
  // another secret.
  StatusOr<KvOffer> Find(Epoch epoch, const std::string& secret) const;

 private:
  KvOffer last_;
  KvOffer now_;
};

// FAILED_PRECONDITION, naming both, unless `has` has the layers of `wanted`.
Status CheckLayers(const StagePlace& has, const StagePlace& wanted);

// The keys and values of some layers, a run at a time. Any thread, one call at
// a time: the next one after `then`.
class KvSource {
 public:
  using Then = std::function<void(StatusOr<std::vector<KvEntry>> entries)>;
  virtual ~KvSource() = default;
  // Hands `then` the next entries, of kBlocksBytes together or one; none: these
  // were all. UNAVAILABLE, FAILED_PRECONDITION: they are gone, or not to be
  // copied. `then` may come from another thread, and before Next returns.
  virtual void Next(Then then) = 0;
};

// Of a shelf; of the runner behind `links`, while `owner`, which has them,
// lives.
std::shared_ptr<KvSource> MakeKvSource(std::shared_ptr<const KvShelf> shelf,
                                       const StagePlace& place);
std::shared_ptr<KvSource> MakeKvSource(EpochLinks* links,
                                       std::weak_ptr<const void> owner,
                                       const StagePlace& place);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_KV_SOURCE_H_
