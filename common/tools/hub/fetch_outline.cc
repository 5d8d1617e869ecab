#include "common/tools/hub/fetch_outline.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/base/text_file.h"
#include "common/tools/hub/read_ranges.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

using weights::ShardBytes;

// Bytes that come in one request: of pieces with small gaps between them.
constexpr uint64_t kMaxGap = 32 << 10;
constexpr uint64_t kMaxRequest = 4 << 20;
constexpr uint64_t kLengthBytesOfHeader = 8;

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
  SLUICE_ASSIGN_OR_RETURN(const std::string header,
                          ReadSafetensorsHeader(reader, file.path, file.bytes));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<ShardBytes> pieces,
      weights::OutlineOf(file.path, header.substr(kLengthBytesOfHeader),
                         file.bytes));
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, ReadPieces(reader, pieces));
  const std::string made = Cat(path, ".made-", ::getpid());
  Status written = WriteTextFile(made, header + bytes);
  if (written.ok() && std::rename(made.c_str(), path.c_str()) != 0) {
    written = Unavailable(path, ": ", std::strerror(errno));
  }
  if (!written.ok()) ::unlink(made.c_str());
  return written;
}

}  // namespace sluice
