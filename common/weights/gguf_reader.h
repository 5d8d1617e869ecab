#ifndef SLUICE_COMMON_WEIGHTS_GGUF_READER_H_
#define SLUICE_COMMON_WEIGHTS_GGUF_READER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/file.h"
#include "common/weights/gguf_file.h"

namespace sluice::weights {

// Reads a header front to back. Every length is checked against the rest of the
// file before memory is taken for it.
class GgufReader {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 128 << 20;
  static constexpr uint64_t kMaxNameBytes = 1 << 10;  // of a key or tensor

  explicit GgufReader(const RandomAccessFile& file)
      : file_(file), limit_(std::min(file.size(), kMaxHeaderBytes)) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return limit_ - position_; }

  // Copies the next `size` bytes; an error names `what`.
  Status Bytes(size_t size, void* out, std::string_view what) {
    if (size > left()) {
      return InvalidArgument(file_.path(), ": ", what, " needs ", size,
                             " bytes at ", position_, ", ", left(),
                             " are left of ", limit_);
    }
    char* to = static_cast<char*>(out);
    while (size > 0) {
      if (next_ == buffer_.size()) SLUICE_RETURN_IF_ERROR(Fill());
      const size_t take = std::min(size, buffer_.size() - next_);
      std::memcpy(to, buffer_.data() + next_, take);
      next_ += take;
      position_ += take;
      to += take;
      size -= take;
    }
    return OkStatus();
  }

  template <typename T>
  StatusOr<T> Scalar(std::string_view what) {
    T value;
    SLUICE_RETURN_IF_ERROR(Bytes(sizeof(value), &value, what));
    return value;
  }

  // Reads a length and a string of that length.
  StatusOr<std::string> String(std::string_view what, uint64_t max_bytes) {
    SLUICE_ASSIGN_OR_RETURN(const auto size, Scalar<uint64_t>(what));
    if (size > left() || size > max_bytes) {
      return InvalidArgument(file_.path(), ": ", what, " of ", size,
                             " bytes at ", position_, ", limit ",
                             std::min(left(), max_bytes));
    }
    std::string text(size, '\0');
    SLUICE_RETURN_IF_ERROR(Bytes(size, text.data(), what));
    return text;
  }

  // Checks `count` as a number of things of at least `min_bytes` each.
  Status CheckCount(uint64_t count, uint64_t min_bytes, uint64_t max_count,
                    std::string_view what) const {
    const uint64_t limit = std::min(max_count, left() / min_bytes);
    if (count <= limit) return OkStatus();
    return InvalidArgument(file_.path(), ": ", count, " ", what, " at ",
                           position_, ", limit ", limit);
  }

  const std::string& path() const { return file_.path(); }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  Status Fill() {
    buffer_.resize(std::min<uint64_t>(kBufferBytes, left()));
    next_ = 0;
    return file_.ReadAt(position_, buffer_.size(), buffer_.data());
  }

  const RandomAccessFile& file_;
  const uint64_t limit_;
  uint64_t position_ = 0;  // of the next byte given out
  std::vector<char> buffer_;
  size_t next_ = 0;
};

// Reads `count` keys with their values.
StatusOr<GgufMetadata> ReadGgufKeys(GgufReader& reader, uint64_t count);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_GGUF_READER_H_
