#ifndef SLUICE_COMMON_STAGE_KV_STORE_H_
#define SLUICE_COMMON_STAGE_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/core/kv_entry.h"
#include "common/core/stage_identity.h"

namespace sluice {

// The sum of an entry's bytes. It finds damage, not intent.
uint64_t KvChecksum(std::string_view data);

// The keys, values and states of a stage's layers, block by block: what another
// stage takes over with the layers. Used by the stage loop's thread, between
// steps.
class KvStore {
 public:
  virtual ~KvStore() = default;
  // Returns what plans have written of the layers of `place` that are here, by
  // layer. All cached blocks are among it.
  virtual std::vector<KvName> Written(const StagePlace& place) const = 0;
  // The bytes of an entry of Written.
  virtual size_t BytesOf(const KvName& name) const = 0;
  // The bytes of the largest entry that Write takes.
  virtual size_t most_bytes() const = 0;
  // The bytes of host memory that a shelf may take.
  virtual uint64_t shelf_room() const = 0;
  // FAILED_PRECONDITION for a name that Written does not have.
  virtual StatusOr<KvEntry> Read(const KvName& name) const = 0;
  // FAILED_PRECONDITION, naming both values, for a layer, group or block that
  // is not here, and for bytes of another size; DATA_LOSS for bytes that are
  // not those of the checksum.
  virtual Status Write(const KvEntry& entry) = 0;
};

// What a store held when its layers went, in host memory.
class KvShelf {
 public:
  // `place`: the layers that went.
  KvShelf(const StagePlace& place, std::vector<KvEntry> entries)
      : place_(place), entries_(std::move(entries)) {}
  // Reads all that plans have written of `place`, the store's layers.
  // RESOURCE_EXHAUSTED without room for it.
  static StatusOr<std::shared_ptr<const KvShelf>> Of(const KvStore& store,
                                                     const StagePlace& place) {
    const std::vector<KvName> names = store.Written(place);
    uint64_t bytes = 0;
    for (const KvName& name : names) bytes += store.BytesOf(name);
    if (bytes > store.shelf_room()) {
      return ResourceExhausted("keys and values have ", bytes,
                               " bytes, host memory has room for ",
                               store.shelf_room());
    }
    std::vector<KvEntry> entries;
    entries.reserve(names.size());
    for (const KvName& name : names) {
      SLUICE_ASSIGN_OR_RETURN(KvEntry entry, store.Read(name));
      entries.push_back(std::move(entry));
    }
    return std::make_shared<const KvShelf>(place, std::move(entries));
  }
  const StagePlace& place() const { return place_; }
  const std::vector<KvEntry>& entries() const { return entries_; }

 private:
  const StagePlace place_;
  const std::vector<KvEntry> entries_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_KV_STORE_H_
