#ifndef SLUICE_COMMON_WEIGHTS_DRAFT_LOCK_H_
#define SLUICE_COMMON_WEIGHTS_DRAFT_LOCK_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/weights/own_folder.h"

namespace sluice::weights {

// Returns the descriptor of the folder's file `draft`, open for writing, made
// if there is none, and locked alone. What stands in its place and is not
// believed is replaced. Waits for another process that has the lock, as long
// as the file changes at least once per `patience`. UNAVAILABLE if the file
// cannot be written or locked.
StatusOr<int> LockDraft(const OwnFolder& folder, const std::string& draft,
                        Duration patience);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_DRAFT_LOCK_H_
