#ifndef SLUICE_COMMON_CORE_KV_ENTRY_H_
#define SLUICE_COMMON_CORE_KV_ENTRY_H_

#include <cstdint>
#include <string>

#include "common/core/ids.h"

namespace sluice {

// One block of one layer of the model. `group`: the KV group that the block is
// of; of the group of states the block has a state in the place of keys and
// values.
struct KvName {
  int32_t layer = 0;
  int32_t group = 0;
  BlockId block;
  bool operator==(const KvName&) const = default;
};

// What the block holds, on its way to another stage: rank by rank the keys,
// values and index keys, or the state.
struct KvEntry {
  KvName name;
  std::string data;
  uint64_t checksum = 0;  // KvChecksum of common/stage/kv_store.h
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_KV_ENTRY_H_
