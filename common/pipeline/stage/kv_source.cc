#include "common/pipeline/stage/kv_source.h"

#include <utility>

#include "common/base/random_bytes.h"

namespace sluice {
namespace {

class ShelfSource : public KvSource {
 public:
  ShelfSource(std::shared_ptr<const KvShelf> shelf, const StagePlace& place)
      : shelf_(std::move(shelf)), place_(place) {}

  void Next(Then then) override {
    std::vector<KvEntry> run;
    size_t bytes = 0;
    const std::vector<KvEntry>& all = shelf_->entries();
    for (; at_ < all.size() && bytes < wire::kBlocksBytes; ++at_) {
      const KvEntry& entry = all[at_];
      if (entry.name.layer < place_.first_layer ||
          entry.name.layer >= place_.last_layer) {
        continue;
      }
      bytes += entry.data.size();
      run.push_back(entry);
    }
    then(std::move(run));
  }

 private:
  const std::shared_ptr<const KvShelf> shelf_;
  const StagePlace place_;
  size_t at_ = 0;
};

class RunnerSource : public KvSource,
                     public std::enable_shared_from_this<RunnerSource> {
 public:
  RunnerSource(EpochLinks* links, std::weak_ptr<const void> owner,
               const StagePlace& place)
      : links_(*links), owner_(std::move(owner)), place_(place) {}

  void Next(Then then) override {
    const auto alive = owner_.lock();
    const bool comes =
        alive != nullptr &&
        links_.Between([self = shared_from_this(), then](KvStore* store) {
          then(self->Read(store));
        });
    if (!comes) then(Unavailable("this stage has no layers now"));
  }

 private:
  // On the runner's thread.
  StatusOr<std::vector<KvEntry>> Read(KvStore* store) {
    if (store == nullptr) {
      return FailedPrecondition(
          "the keys and values of this stage cannot be copied: its layers go, "
          "or its ranks are of several processes or GPUs");
    }
    if (!std::exchange(begun_, true)) names_ = store->Written(place_);
    std::vector<KvEntry> run;
    size_t bytes = 0;
    for (; at_ < names_.size() && bytes < wire::kBlocksBytes; ++at_) {
      SLUICE_ASSIGN_OR_RETURN(KvEntry entry, store->Read(names_[at_]));
      bytes += entry.data.size();
      run.push_back(std::move(entry));
    }
    return run;
  }

  EpochLinks& links_;
  const std::weak_ptr<const void> owner_;
  const StagePlace place_;
  bool begun_ = false;  // the runner's thread's from here on
  std::vector<KvName> names_;
  size_t at_ = 0;
};

}  // namespace

void KvOffers::Begin(Epoch epoch, std::string secret, bool kept, Epoch donors) {
  if (kept) {
    last_ = std::move(now_);
  } else if (last_.shelf == nullptr || last_.epoch != donors) {
    last_ = KvOffer();
  }
  now_ = {epoch, std::move(secret)};
}

void KvOffers::Unload(std::shared_ptr<const KvShelf> shelf) {
  last_ = std::move(now_);
  last_.shelf = std::move(shelf);
  if (last_.shelf == nullptr) last_ = KvOffer();
  now_ = KvOffer();
}

StatusOr<KvOffer> KvOffers::Find(Epoch epoch, const std::string& secret) const {
  for (const KvOffer* offer : {&now_, &last_}) {
    if (epoch == Epoch() || offer->epoch != epoch) continue;
    if (EqualSecrets(offer->secret, secret)) return *offer;
    return FailedPrecondition("the secret is not that of epoch ", epoch);
  }
  return FailedPrecondition("this stage has no keys and values of epoch ",
                            epoch, ", but of ", now_.epoch, " and ",
                            last_.epoch);
}

Status CheckLayers(const StagePlace& has, const StagePlace& wanted) {
  if (!wanted.empty() && wanted.first_layer >= has.first_layer &&
      wanted.last_layer <= has.last_layer) {
    return OkStatus();
  }
  return FailedPrecondition(
      "layers ", wanted.first_layer, " to ", int64_t{wanted.last_layer} - 1,
      ": this stage has layers ", has.first_layer, " to ", has.last_layer - 1);
}

std::shared_ptr<KvSource> MakeKvSource(std::shared_ptr<const KvShelf> shelf,
                                       const StagePlace& place) {
  return std::make_shared<ShelfSource>(std::move(shelf), place);
}

std::shared_ptr<KvSource> MakeKvSource(EpochLinks* links,
                                       std::weak_ptr<const void> owner,
                                       const StagePlace& place) {
  return std::make_shared<RunnerSource>(links, std::move(owner), place);
}

}  // namespace sluice
