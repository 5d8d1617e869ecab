#ifndef SLUICE_SERVICES_STAGE_LOAD_PROGRESS_H_
#define SLUICE_SERVICES_STAGE_LOAD_PROGRESS_H_

#include <cstdint>
#include <string>

#include "common/base/mutex.h"

namespace sluice::stage {

// Shows a person how loading goes: a bar on stderr if that is a terminal,
// else one log line per tenth. Any thread.
class LoadProgress {
 public:
  LoadProgress();
  // Returns "loading, 42 % of 1234 MB" for peers that ask meanwhile.
  std::string Report(uint64_t done, uint64_t total);

 private:
  const bool terminal_;
  Mutex mutex_;
  int shown_percent_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_LOAD_PROGRESS_H_
