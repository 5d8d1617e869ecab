#include "services/cli/log_merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::cli {
namespace {

constexpr size_t kChunk = size_t{1} << 16;

// A file that is open until the object ends.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0 && ::fstat(fd_, &status_) != 0) status_.st_size = 0;
  }
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  ino_t inode() const { return status_.st_ino; }

  // Returns the bytes of [begin, end), fewer where the file was cut.
  std::string Read(uint64_t begin, uint64_t end) const {
    std::string bytes(end - begin, '\0');
    size_t have = 0;
    while (have < bytes.size()) {
      const ssize_t got = ::pread(fd_, bytes.data() + have, bytes.size() - have,
                                  static_cast<off_t>(begin + have));
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

 private:
  const int fd_;
  struct stat status_ {};
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string TimeOf(const std::string& line) {
  constexpr std::string_view kJsonHead = "{\"ts\":\"";
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.dddZ";
  std::string_view time = line;
  if (time.starts_with(kJsonHead)) time.remove_prefix(kJsonHead.size());
  if (time.size() < kForm.size()) return "";
  time = time.substr(0, kForm.size());
  for (size_t i = 0; i < time.size(); ++i) {
    if (kForm[i] == 'd' ? !IsDigit(time[i]) : time[i] != kForm[i]) return "";
  }
  return std::string(time);
}

void MergeByTime(std::vector<LogLine>& lines) {
  std::stable_sort(
      lines.begin(), lines.end(),
      [](const auto& a, const auto& b) { return a.time < b.time; });
}

LogFile::LogFile(std::string path)
    : path_(std::move(path)), name_([this] {
        const std::string file = path_.substr(path_.rfind('/') + 1);
        return file.substr(0, file.rfind('.'));
      }()) {}

void LogFile::ReadLast(size_t count, bool with_open_line,
                       std::vector<LogLine>& lines) {
  const OpenFile file(path_);
  if (!file.is_open()) return;
  offset_ = file.size();
  inode_ = file.inode();
  open_line_.clear();
  std::vector<std::string> chunks;  // the file's last one first
  size_t ends = 0;                  // of the lines, and of the line before them
  for (uint64_t begin = offset_; begin > 0 && ends <= count;) {
    const uint64_t before = begin > kChunk ? begin - kChunk : 0;
    const std::string& chunk = chunks.emplace_back(file.Read(before, begin));
    ends += static_cast<size_t>(std::count(chunk.begin(), chunk.end(), '\n'));
    begin = before;
  }
  std::vector<LogLine> found;
  for (; !chunks.empty(); chunks.pop_back()) Append(chunks.back(), found);
  if (with_open_line && !open_line_.empty()) {
    found.push_back({name_, time_, std::exchange(open_line_, {})});
  }
  const size_t skipped = found.size() > count ? found.size() - count : 0;
  lines.insert(lines.end(), found.begin() + static_cast<ptrdiff_t>(skipped),
               found.end());
}

void LogFile::ReadNew(std::vector<LogLine>& lines) {
  const OpenFile file(path_);
  if (!file.is_open()) return;
  if (file.inode() != inode_ || file.size() < offset_) {
    offset_ = 0;
    inode_ = file.inode();
    open_line_.clear();
  }
  while (offset_ < file.size()) {
    const std::string bytes =
        file.Read(offset_, std::min(file.size(), offset_ + kChunk));
    if (bytes.empty()) return;
    offset_ += bytes.size();
    Append(bytes, lines);
  }
}

void LogFile::Append(const std::string& text, std::vector<LogLine>& lines) {
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    std::string line = std::exchange(open_line_, {});
    line.append(text, begin, end - begin);
    const std::string time = TimeOf(line);
    if (!time.empty()) time_ = time;
    lines.push_back({name_, time_, std::move(line)});
  }
  open_line_.append(text, begin);
}

}  // namespace sluice::cli
