#include "common/tools/hub/fetch_outline.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/text_file.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

using weights::ShardBytes;

// Bytes that come in one request: of pieces with small gaps between them.
constexpr uint64_t kMaxGap = 32 << 10;
constexpr uint64_t kMaxRequest = 4 << 20;
constexpr uint64_t kLengthBytesOfHeader = 8;

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

// Reads ranges of one file. The first request finds where the hub redirects to,
// the others go there.
class RangeReader {
 public:
  RangeReader(HubClient& client, const std::string& url)
      : client_(client), url_(url) {}

  StatusOr<std::string> Read(const ShardBytes& range) {
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

 private:
  HubClient& client_;
  const std::string url_;
  std::string place_;
};

// Returns the bytes of `pieces`, which ascend, one behind the other.
StatusOr<std::string> ReadPieces(RangeReader& reader,
                                 const std::vector<ShardBytes>& pieces) {
  std::string bytes;
  for (size_t i = 0; i < pieces.size();) {
    ShardBytes range = pieces[i];
    size_t next = i + 1;
    for (; next < pieces.size(); ++next) {
      const uint64_t end = pieces[next].begin + pieces[next].size;
      const bool near =
          pieces[next].begin - (range.begin + range.size) <= kMaxGap;
      if (!near || end - range.begin > kMaxRequest) break;
      range.size = end - range.begin;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::string got, reader.Read(range));
    for (; i < next; ++i) {
      bytes.append(got, pieces[i].begin - range.begin, pieces[i].size);
    }
  }
  return bytes;
}

}  // namespace

Status FetchOutline(HubClient& client, const std::string& url,
                    const HubFile& file, const std::string& path) {
  if (::access(path.c_str(), R_OK) == 0) return OkStatus();
  RangeReader reader(client, url);
  SLUICE_ASSIGN_OR_RETURN(const std::string length,
                          reader.Read({0, kLengthBytesOfHeader}));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, length.data(), sizeof(header_bytes));
  if (header_bytes > weights::kMaxSafetensorsHeader ||
      header_bytes > file.bytes) {
    return InvalidArgument(file.path, ": header of ", header_bytes,
                           " bytes, limit ", weights::kMaxSafetensorsHeader);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string header,
                          reader.Read({kLengthBytesOfHeader, header_bytes}));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ShardBytes> pieces,
                          weights::OutlineOf(file.path, header, file.bytes));
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, ReadPieces(reader, pieces));
  const std::string made = Cat(path, ".made-", ::getpid());
  Status written = WriteTextFile(made, length + header + bytes);
  if (written.ok() && std::rename(made.c_str(), path.c_str()) != 0) {
    written = Unavailable(path, ": ", std::strerror(errno));
  }
  if (!written.ok()) ::unlink(made.c_str());
  return written;
}

}  // namespace sluice
