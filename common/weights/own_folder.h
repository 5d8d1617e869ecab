#ifndef SLUICE_COMMON_WEIGHTS_OWN_FOLDER_H_
#define SLUICE_COMMON_WEIGHTS_OWN_FOLDER_H_

#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/weights/file.h"

namespace sluice::weights {

// Returns the rule by which a file or folder is not believed, "is of user 7,
// not of 1000 or root"; "" for one that its user or root has and no other may
// write.
std::string DistrustOf(const struct stat& info);

// A folder that only this process's user may write, below a folder that may be
// anybody's: BASE/uid-N, of mode 0700, where N is the user. What is in it is
// opened without following links, and believed only by DistrustOf. Any thread
// may call const methods.
class OwnFolder {
 public:
  enum class Missing { kFail, kMake };

  // Opens BASE/uid-N or, with `below`, BASE/uid-N/`below`. NOT_FOUND without
  // it, PERMISSION_DENIED for a folder that is not believed, UNAVAILABLE for
  // one that cannot be made. One of this user's that others could write is
  // emptied and closed to them, and the log says so.
  static StatusOr<std::shared_ptr<const OwnFolder>> Open(
      const std::string& base, const std::string& below, Missing missing);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& name) const {
    return path_ + "/" + name;
  }
  // For openat.
  int descriptor() const { return fd_; }
  // BASE/uid-N, which has all folders of this user.
  int root() const { return root_; }
  const std::string& root_path() const { return root_path_; }
  const std::string& below() const { return below_; }
  // Random bytes that prove who has written a file; the folder keeps them.
  const std::string& secret() const { return secret_; }

  // NOT_FOUND without the file, PERMISSION_DENIED for one that is not believed.
  StatusOr<std::unique_ptr<RandomAccessFile>> OpenFile(
      const std::string& name) const;

 private:
  OwnFolder(std::string root_path, int root, std::string below, int fd)
      : root_path_(std::move(root_path)),
        below_(std::move(below)),
        path_(below_.empty() ? root_path_ : root_path_ + "/" + below_),
        root_(root),
        fd_(fd) {}
  Status ReadSecret();
  Status MakeSecret(bool replaces) const;

  const std::string root_path_;
  const std::string below_;
  const std::string path_;
  const int root_;
  const int fd_;  // root_ without `below`
  std::string secret_;
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_OWN_FOLDER_H_
