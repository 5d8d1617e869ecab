#ifndef SLUICE_COMMON_WEIGHTS_FILE_H_
#define SLUICE_COMMON_WEIGHTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice::weights {

// A regular file opened for reading by position: a file that shrinks while it
// is read gives DATA_LOSS, where a mapping gives SIGBUS. Any thread may call
// const methods at once.
class RandomAccessFile {
 public:
  // NOT_FOUND if there is no such file, INVALID_ARGUMENT if it is not regular.
  static StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path);
  // Takes `fd`, which is the opened file `path`. Errors as above.
  static StatusOr<std::unique_ptr<RandomAccessFile>> Adopt(
      const std::string& path, int fd);
  ~RandomAccessFile();
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  const std::string& path() const { return path_; }
  // At the time of opening.
  uint64_t size() const { return size_; }
  // For mmap.
  int descriptor() const { return fd_; }

  // Fills `out` with the `size` bytes at `offset`, or fails.
  Status ReadAt(uint64_t offset, size_t size, void* out) const;

 private:
  RandomAccessFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  const std::string path_;
  const int fd_;
  const uint64_t size_;
};

// Returns the whole of a text file; INVALID_ARGUMENT above `max_bytes`.
StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t max_bytes);

// Returns `text` for a message: control and non-ASCII bytes escaped, cut after
// 100 bytes, in quotes.
std::string Quoted(std::string_view text);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_FILE_H_
