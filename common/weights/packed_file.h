#ifndef SLUICE_COMMON_WEIGHTS_PACKED_FILE_H_
#define SLUICE_COMMON_WEIGHTS_PACKED_FILE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/memory_node.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "common/weights/file.h"
#include "common/weights/own_folder.h"
#include "kernels/context.h"
#include "kernels/weight_type.h"

// Files of packed weights: bytes in a device's layout, which processes read or
// map as they are. Numbers are of 8 bytes, lowest first.
//
//   "sluice packed 3\n"
//   bytes of the head, bytes of the file, bytes of the key, number of parts,
//   XXH64 of the head with zero in this place
//   HMAC-SHA-256 of the head with zeros in this place and the one before, by
//   the secret of the file's folder
//   the key, which says of what and how the weights were made; zeros up to a
//   multiple of 8 bytes
//   for every part: weight, type, rows, columns, offset, bytes
//   for every part: XXH64 of each of its pieces of 1 MiB, the last is shorter
//   the parts, each at a multiple of 4096 bytes
namespace sluice::weights {

// Rows of one type of a weight, in a device's layout.
struct PackedPart {
  uint64_t weight = 0;  // number of the weight: 0, 0, 1, ... over the parts
  kernels::WeightType type = kernels::WeightType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

enum class PackedMemory {
  kCopy,  // the process's own memory, of huge pages where the system has them
  kMap,   // the file's pages, which all processes share that map the file
};

// The weights of a file in memory, read-only. Any thread may call const
// methods.
class PackedFile {
 public:
  // Reads or maps the file on the team of `context`, and checks the head, every
  // size and all sums. Memory of its own comes from the NUMA node `node`.
  // FAILED_PRECONDITION for another key, DATA_LOSS for a file that is cut short
  // or damaged, PERMISSION_DENIED for one whose writer did not know `secret`.
  static StatusOr<std::shared_ptr<const PackedFile>> Read(
      const RandomAccessFile& file, std::string_view key,
      std::string_view secret, PackedMemory memory,
      const kernels::Context& context, int node = kAnyNode);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  // Their data is at multiples of 64 bytes.
  const std::vector<PackedPart>& parts() const { return parts_; }
  uint64_t bytes() const { return bytes_; }

 private:
  PackedFile(const std::byte* map, Buffer copy, uint64_t bytes)
      : map_(map), copy_(std::move(copy)), bytes_(bytes) {}

  const std::byte* const map_;  // null: the bytes are in copy_
  Buffer copy_;
  const uint64_t bytes_;
  std::vector<PackedPart> parts_;
};

// Returns the bytes of a file of these parts.
uint64_t PackedBytes(std::string_view key,
                     const std::vector<PackedPart>& parts);

// How long the draft of another process that has the lock may stay as it is,
// until that process counts as stopped.
inline constexpr Duration kPackedPatience = std::chrono::seconds(60);

// The right to write one file of a folder, which one process at a time has: a
// lock on NAME.tmp, which becomes NAME. The destructor gives it up and removes
// what Commit has not made the file.
class PackedDraft {
 public:
  // Waits for another process that writes the file, as long as its draft
  // changes at least once per `patience`. UNAVAILABLE if the draft cannot be
  // written or locked.
  static StatusOr<std::unique_ptr<PackedDraft>> Lock(
      std::shared_ptr<const OwnFolder> folder, const std::string& name,
      Duration patience = kPackedPatience);
  ~PackedDraft();
  PackedDraft(const PackedDraft&) = delete;
  PackedDraft& operator=(const PackedDraft&) = delete;

  const std::string& name() const { return name_; }
  // Gives the draft the size that it will have. UNAVAILABLE if it may not.
  Status Resize(uint64_t bytes);
  // Writes the file, waits until the disk has it and replaces a file that was
  // there. UNAVAILABLE if the disk takes no more. Call it once.
  Status Commit(std::string_view key, const std::vector<PackedPart>& parts,
                const kernels::Context& context);

 private:
  PackedDraft(std::shared_ptr<const OwnFolder> folder, std::string name, int fd)
      : folder_(std::move(folder)), name_(std::move(name)), fd_(fd) {}
  Status Write(const void* data, uint64_t bytes) const;

  const std::shared_ptr<const OwnFolder> folder_;
  const std::string name_;  // of the finished file
  const int fd_;
  bool committed_ = false;
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_PACKED_FILE_H_
