#include "common/tools/hub/read_ranges.h"

#include <cstring>
#include <optional>
#include <utility>

namespace sluice {
namespace {

using weights::ShardBytes;

constexpr uint64_t kLengthBytes = 8;

// Receives a range of a file.
class RangeReceiver : public ByteReceiver {
 public:
  explicit RangeReceiver(const ShardBytes& range) : range_(range) {}
  uint64_t offset() const override { return range_.begin + bytes_.size(); }
  std::optional<uint64_t> end() const override {
    return range_.begin + range_.size;
  }
  Status Begin(uint64_t offset) override { return OkStatus(); }
  Status Take(std::string_view bytes) override {
    if (bytes.size() > range_.size - bytes_.size()) {
      return DataLoss("the server sends more than the range that was asked ",
                      "for: ", range_.size, " bytes at ", range_.begin);
    }
    bytes_.append(bytes);
    return OkStatus();
  }
  const std::string& bytes() const { return bytes_; }

 private:
  const ShardBytes range_;
  std::string bytes_;
};

}  // namespace

RangeReader::RangeReader(HubClient& client, std::string url)
    : client_(client), url_(std::move(url)) {}

StatusOr<std::string> RangeReader::Read(const ShardBytes& range) {
  if (range.size == 0) return std::string();
  RangeReceiver receiver(range);
  Status got = client_.Get(place_.empty() ? url_ : place_, receiver);
  if (!got.ok() && !place_.empty()) got = client_.Get(url_, receiver);
  if (!got.ok()) return got;
  if (receiver.bytes().size() != range.size) {
    return Unavailable(url_, ": ", receiver.bytes().size(), " bytes came of ",
                       range.size, " at ", range.begin);
  }
  place_ = client_.last_place();
  return receiver.bytes();
}

StatusOr<std::string> ReadSafetensorsHeader(RangeReader& reader,
                                            const std::string& name,
                                            uint64_t file_bytes) {
  SLUICE_ASSIGN_OR_RETURN(const std::string length,
                          reader.Read({0, kLengthBytes}));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, length.data(), sizeof(header_bytes));
  if (header_bytes > weights::kMaxSafetensorsHeader ||
      header_bytes > file_bytes) {
    return InvalidArgument(name, ": header of ", header_bytes, " bytes, limit ",
                           weights::kMaxSafetensorsHeader);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string header,
                          reader.Read({kLengthBytes, header_bytes}));
  return length + header;
}

}  // namespace sluice
