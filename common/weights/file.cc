#include "common/weights/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice::weights {
namespace {

constexpr size_t kMaxReadBytes = size_t{64} << 20;  // of one system call
constexpr size_t kQuotedBytes = 100;

Status ErrnoStatus(const std::string& path, const char* what, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return NotFound(path, ": no such file");
  }
  return InvalidArgument(path, ": ", what, ": ", std::strerror(error));
}

}  // namespace

StatusOr<std::unique_ptr<RandomAccessFile>> RandomAccessFile::Open(
    const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, "cannot open", errno);
  return Adopt(path, fd);
}

StatusOr<std::unique_ptr<RandomAccessFile>> RandomAccessFile::Adopt(
    const std::string& path, int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return ErrnoStatus(path, "cannot stat", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(path, ": not a regular file");
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::unique_ptr<RandomAccessFile>(
      new RandomAccessFile(path, fd, static_cast<uint64_t>(info.st_size)));
}

RandomAccessFile::~RandomAccessFile() { ::close(fd_); }

Status RandomAccessFile::ReadAt(uint64_t offset, size_t size, void* out) const {
  if (offset > size_ || size > size_ - offset) {
    return DataLoss(path_, ": ", size, " bytes at ", offset,
                    " are beyond the file's end at ", size_);
  }
  char* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, to, std::min(size, kMaxReadBytes),
                                static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return DataLoss(path_, ": cannot read ", size, " bytes at ", offset, ": ",
                      std::strerror(errno));
    }
    if (got == 0) {
      return DataLoss(path_, ": ends at ", offset, ", had ", size_,
                      " bytes when it was opened");
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return OkStatus();
}

StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t max_bytes) {
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  if (file->size() > max_bytes) {
    return InvalidArgument(path, ": ", file->size(), " bytes, limit ",
                           max_bytes);
  }
  std::string text(file->size(), '\0');
  SLUICE_RETURN_IF_ERROR(file->ReadAt(0, text.size(), text.data()));
  return text;
}

std::string Quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  if (text.size() > kQuotedBytes) out += "...";
  return out + "'";
}

}  // namespace sluice::weights
