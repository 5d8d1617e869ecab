#include "common/tools/chat/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sluice::chat {
namespace {

constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;

Status Write(const std::string& path, int flags, const std::string& text) {
  const int file =
      ::open(path.c_str(), flags | O_CREAT | O_WRONLY | O_CLOEXEC, kPrivate);
  bool is_good = file >= 0 && ::fchmod(file, kPrivate) == 0;
  for (size_t at = 0; is_good && at < text.size();) {
    const ssize_t put = ::write(file, text.data() + at, text.size() - at);
    is_good = put > 0;
    if (is_good) at += static_cast<size_t>(put);
  }
  const Status status =
      is_good ? OkStatus() : Unavailable(path, ": ", std::strerror(errno));
  if (file >= 0) ::close(file);
  return status;
}

}  // namespace

Status WritePrivateFile(const std::string& path, const std::string& text) {
  const std::string part = Cat(path, ".", ::getpid(), ".part");
  Status status = Write(part, O_EXCL, text);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = Unavailable(path, ": ", std::strerror(errno));
  }
  if (!status.ok()) ::unlink(part.c_str());
  return status;
}

Status AppendPrivateFile(const std::string& path, const std::string& text) {
  return Write(path, O_APPEND, text);
}

}  // namespace sluice::chat
