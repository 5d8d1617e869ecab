#ifndef SLUICE_COMMON_STANDBY_FEED_RECORD_H_
#define SLUICE_COMMON_STANDBY_FEED_RECORD_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice::standby {

// A record of a feed: its size before it, in four bytes.
std::string FeedRecord(std::string_view bytes);

// Takes a feed's bytes apart. Threadless.
class FeedReader {
 public:
  static constexpr size_t kMaxRecord = size_t{32} << 20;

  // INVALID_ARGUMENT for a record above kMaxRecord.
  Status Feed(std::string_view bytes);
  // Moves the next whole record to `record`; false: more bytes are needed.
  bool Next(std::string& record);

 private:
  size_t SizeOfNext() const;  // of the record; its four bytes are there

  std::string bytes_;
  size_t begin_ = 0;  // of what Next has not returned
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_FEED_RECORD_H_
