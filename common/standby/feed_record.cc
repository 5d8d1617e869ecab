#include "common/standby/feed_record.h"

#include <cstdint>
#include <utility>

#include "common/base/check.h"

namespace sluice::standby {
namespace {

constexpr size_t kSizeBytes = 4;

}  // namespace

std::string FeedRecord(std::string_view bytes) {
  SLUICE_CHECK(bytes.size() <= FeedReader::kMaxRecord);
  std::string record;
  for (int shift = 24; shift >= 0; shift -= 8) {
    record += static_cast<char>((bytes.size() >> shift) & 0xff);
  }
  return record.append(bytes);
}

size_t FeedReader::SizeOfNext() const {
  size_t size = 0;
  for (size_t i = 0; i < kSizeBytes; ++i) {
    size = size << 8 | static_cast<uint8_t>(bytes_[begin_ + i]);
  }
  return size;
}

Status FeedReader::Feed(std::string_view bytes) {
  bytes_.erase(0, std::exchange(begin_, 0));
  bytes_.append(bytes);
  if (bytes_.size() >= kSizeBytes && SizeOfNext() > kMaxRecord) {
    return InvalidArgument("a record of ", SizeOfNext(), " bytes, above ",
                           kMaxRecord);
  }
  return OkStatus();
}

bool FeedReader::Next(std::string& record) {
  const size_t left = bytes_.size() - begin_;
  if (left < kSizeBytes || left - kSizeBytes < SizeOfNext()) return false;
  const size_t size = SizeOfNext();
  record = bytes_.substr(begin_ + kSizeBytes, size);
  begin_ += kSizeBytes + size;
  return true;
}

}  // namespace sluice::standby
