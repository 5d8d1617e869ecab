#include "common/tools/hub/fetch_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/base/check.h"

namespace sluice {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kSha256Digits = 64;
constexpr size_t kSha1Digits = 40;

std::string IncompletePath(const std::string& blob) {
  return blob + ".incomplete";
}

// The digest that an etag of this length is; none for other servers' etags.
class EtagDigest {
 public:
  EtagDigest(const HubFile& file)
      : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    SLUICE_CHECK(context_ != nullptr);
    const bool hexadecimal =
        file.etag.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hexadecimal) return;
    if (file.etag.size() == kSha256Digits) type_ = EVP_sha256();
    if (file.etag.size() == kSha1Digits) type_ = EVP_sha1();
    Restart(file.bytes);
  }

  bool known() const { return type_ != nullptr; }
  const char* name() const { return type_ == EVP_sha1() ? "SHA-1" : "SHA-256"; }

  void Restart(uint64_t bytes) {
    if (!known()) return;
    SLUICE_CHECK(EVP_DigestInit_ex(context_.get(), type_, nullptr) == 1);
    if (type_ != EVP_sha1()) return;
    // git hashes a blob's kind and length first, ended by a zero.
    const std::string head = Cat("blob ", bytes);
    Add(std::string_view(head.c_str(), head.size() + 1));
  }

  void Add(std::string_view bytes) {
    if (!known()) return;
    SLUICE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) ==
                 1);
  }

  std::string Finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    SLUICE_CHECK(EVP_DigestFinal_ex(context_.get(), bytes, &size) == 1);
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", bytes[i]);
      hex += digits;
    }
    return hex;
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  const EVP_MD* type_ = nullptr;
};

// Writes a file's bytes behind those of earlier runs, and hashes all of them.
class BlobReceiver : public ByteReceiver {
 public:
  BlobReceiver(const HubFile& file, std::string path, const OnBytes& on_bytes)
      : file_(file),
        path_(std::move(path)),
        on_bytes_(on_bytes),
        digest_(file) {}
  ~BlobReceiver() override {
    if (fd_ >= 0) ::close(fd_);
  }

  // Opens the file and reads what it has.
  Status Open() {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return Failed();
    std::vector<char> buffer(kReadBytes);
    while (true) {
      const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed();
      if (count == 0) break;
      Count({buffer.data(), static_cast<size_t>(count)});
    }
    found_ = offset_;
    // Longer than the file: of something else.
    return offset_ > file_.bytes ? Begin(0) : OkStatus();
  }

  uint64_t offset() const override { return offset_; }
  // Of these, bytes that were there when it was opened.
  uint64_t found() const { return found_; }

  Status Begin(uint64_t offset) override {
    if (offset == offset_) return OkStatus();
    SLUICE_CHECK(offset == 0);
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) {
      return Failed();
    }
    offset_ = 0;
    found_ = 0;
    digest_.Restart(file_.bytes);
    return OkStatus();
  }

  Status Take(std::string_view bytes) override {
    if (bytes.size() > file_.bytes - offset_) {
      return DataLoss(file_.path, ": the server sends more than the ",
                      file_.bytes, " bytes that the hub lists");
    }
    Count(bytes);
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed();
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  // Compares size and digest, and gives the file its name.
  Status Finish(const std::string& blob) {
    if (offset_ != file_.bytes) {
      return Unavailable(file_.path, ": ", offset_, " bytes came, the hub ",
                         "lists ", file_.bytes);
    }
    const std::string found = digest_.known() ? digest_.Finish() : file_.etag;
    if (found != file_.etag) {
      ::unlink(path_.c_str());
      return DataLoss(file_.path, ": has the ", digest_.name(), " ", found,
                      ", the hub lists ", file_.etag,
                      ": it was altered or damaged on its way, and is removed");
    }
    if (::fsync(fd_) != 0 || ::rename(path_.c_str(), blob.c_str()) != 0) {
      return Failed();
    }
    return OkStatus();
  }

 private:
  void Count(std::string_view bytes) {
    offset_ += bytes.size();
    digest_.Add(bytes);
    if (on_bytes_) on_bytes_(bytes.size());
  }
  Status Failed() const {
    return Unavailable(path_, ": ", std::strerror(errno));
  }

  const HubFile& file_;
  const std::string path_;
  const OnBytes& on_bytes_;
  EtagDigest digest_;
  int fd_ = -1;
  uint64_t offset_ = 0;
  uint64_t found_ = 0;
};

Status FetchOnce(HubClient& client, const std::string& url,
                 const std::string& blob, BlobReceiver& receiver,
                 const HubFile& file) {
  SLUICE_RETURN_IF_ERROR(receiver.Open());
  if (receiver.offset() < file.bytes) {
    SLUICE_RETURN_IF_ERROR(client.Get(url, receiver));
  }
  return receiver.Finish(blob);
}

}  // namespace

Status FetchFile(HubClient& client, const std::string& url, const HubFile& file,
                 const std::string& blob, const OnBytes& on_bytes) {
  BlobReceiver receiver(file, IncompletePath(blob), on_bytes);
  const Status done = FetchOnce(client, url, blob, receiver, file);
  if (done.code() != StatusCode::kDataLoss || receiver.found() == 0) {
    return done;
  }
  // What an earlier run had left may be at fault: once from the start.
  ::unlink(IncompletePath(blob).c_str());
  BlobReceiver again(file, IncompletePath(blob), on_bytes);
  return FetchOnce(client, url, blob, again, file);
}

uint64_t BytesHere(const std::string& blob, const HubFile& file) {
  struct stat info;
  if (::stat(blob.c_str(), &info) == 0 &&
      static_cast<uint64_t>(info.st_size) == file.bytes) {
    return file.bytes;
  }
  if (::stat(IncompletePath(blob).c_str(), &info) != 0) return 0;
  return std::min(static_cast<uint64_t>(info.st_size), file.bytes);
}

}  // namespace sluice
