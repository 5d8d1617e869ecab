#ifndef SLUICE_COMMON_MODEL_READ_AHEAD_H_
#define SLUICE_COMMON_MODEL_READ_AHEAD_H_

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/status.h"
#include "common/device/backend.h"

namespace sluice {

// One of a list of things that are read in parts and then taken.
struct AheadRead {
  uint64_t bytes = 0;  // of memory, from `begin` on until it is taken
  int64_t parts = 0;
  // Called once before its parts are read; one read begins at a time.
  std::function<void()> begin;
  // Reads part i, on any thread and beside other parts.
  std::function<Status(int64_t i)> read;
  // Called on the caller's thread: `done` of the parts are read.
  std::function<void(int64_t done)> progress;
  // Called on the caller's thread when all parts are read.
  std::function<Status()> take;
};

// A layer of a large model, or one of its embeddings.
inline constexpr uint64_t kReadAheadBytes = uint64_t{3} << 29;

struct ReadAheadOptions {
  // Threads that read while others are taken; 0: the caller reads each before
  // it takes it.
  int threads = 0;
  // Bytes of reads that are begun and not taken, except for one alone.
  uint64_t most_bytes = kReadAheadBytes;
};

// Reads all and takes each in the list's order, which holds for errors, too:
// returns that of the first read, and of its first part, that has one, and
// takes nothing from there on. No function is called after the return.
Status ReadAhead(std::span<const AheadRead> reads,
                 const ReadAheadOptions& options);

// Returns how weights for a device are read: by threads where packing them
// leaves the CPUs idle. Weights that stay in the host's memory are read by the
// thread that packs them, beside whose CPU their pages then are.
ReadAheadOptions ReadAheadFor(const BackendInfo& device);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_READ_AHEAD_H_
