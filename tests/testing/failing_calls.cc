#include "tests/testing/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

// glibc's own, under the names that it keeps for this.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace sluice::testing {
namespace {

FailingCalls g_own;
std::atomic<FailingCalls*> g_calls{&g_own};

// Tells where the process aborts, and lets it.
void OnAbort(int number) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, std::size(frames)), 2);
  signal(number, SIG_DFL);
  raise(number);
}

// Maps the file of another process's; what fails here leaves its own.
__attribute__((constructor)) void FindFile() {
  const char* path = getenv("SLUICE_FAILING_CALLS");
  if (path == nullptr) return;
  void* ignored[1];
  backtrace(ignored, 1);  // loads what it needs, while nothing fails
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) abort();
  void* const block = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, sizeof(FailingCalls), PROT_READ | PROT_WRITE,
              MAP_SHARED, fd, 0));
  if (block == MAP_FAILED) abort();
  syscall(SYS_close, fd);
  g_calls = static_cast<FailingCalls*>(block);
  signal(SIGABRT, OnAbort);
}

void Tell(const char* what, size_t bytes) {
  char line[128];
  const int size =
      snprintf(line, sizeof(line), "failing call: %s %zu\n", what, bytes);
  syscall(SYS_write, 2, line, static_cast<size_t>(size));
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, std::size(frames)), 2);
}

// Counts a call, and returns whether it fails.
bool Fails(FailingCalls::Kind kind, const char* what, size_t bytes) {
  FailingCalls& calls = *g_calls;
  if (calls.armed == 0 || calls.kind != kind) return false;
  const uint64_t number = ++calls.count;
  if (calls.fail_at == 0 || number < calls.fail_at) return false;
  if (number > calls.fail_at) return calls.lasts != 0;
  calls.failed = 1;
  if (calls.quiet == 0) {
    calls.armed = 0;  // of what Tell does
    Tell(what, bytes);
    calls.armed = 1;
  }
  return true;
}

bool AllocationFails(const char* what, size_t size) {
  const FailingCalls& calls = *g_calls;
  if (calls.armed == 0 || size < calls.min_bytes || size >= calls.max_bytes ||
      !Fails(FailingCalls::kAllocations, what, size)) {
    return false;
  }
  errno = ENOMEM;
  return true;
}

bool WriteFails(const char* what, size_t size = 0) {
  if (!Fails(FailingCalls::kWrites, what, size)) return false;
  errno = static_cast<int>((*g_calls).error);
  return true;
}

bool IsFile(int fd) {
  struct stat info;
  return fd > 2 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool ForWriting(int flags) { return (flags & (O_WRONLY | O_RDWR)) != 0; }

// The last argument of open, where the flags ask for one.
mode_t ModeOf(int flags, va_list more) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0
             ? static_cast<mode_t>(va_arg(more, unsigned))
             : 0;
}

int Open(int folder, const char* path, int flags, mode_t mode) {
  if (ForWriting(flags) && strncmp(path, "/dev/", 5) != 0 &&
      strncmp(path, "/proc/", 6) != 0 && WriteFails("open")) {
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

FILE* OpenStream(const char* path, const char* mode, const char* real) {
  if (strpbrk(mode, "wa+") != nullptr && WriteFails("fopen")) return nullptr;
  using Function = FILE* (*)(const char*, const char*);
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, real))(path, mode);
}

}  // namespace

FailingCalls& ThisProcessFailingCalls() { return *g_calls; }

}  // namespace sluice::testing

using sluice::testing::AllocationFails;
using sluice::testing::IsFile;
using sluice::testing::WriteFails;

extern "C" {

void* malloc(size_t size) {
  return AllocationFails("malloc", size) ? nullptr : __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  return AllocationFails("calloc", count * size) ? nullptr
                                                 : __libc_calloc(count, size);
}

void* realloc(void* block, size_t size) {
  return AllocationFails("realloc", size) ? nullptr
                                          : __libc_realloc(block, size);
}

void* memalign(size_t alignment, size_t size) {
  return AllocationFails("memalign", size) ? nullptr
                                           : __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  void* const made = memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

void* mmap(void* address, size_t size, int protection, int flags, int fd,
           off_t offset) {
  // Abseil's arenas have this size, whatever comes from outside.
  constexpr size_t kAbseilArena = size_t{64} << 10;
  if (size != kAbseilArena && AllocationFails("mmap", size)) return MAP_FAILED;
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}

void* mmap64(void* address, size_t size, int protection, int flags, int fd,
             off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (IsFile(fd) && WriteFails("write", size)) return -1;
  return syscall(SYS_write, fd, bytes, size);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (IsFile(fd) && WriteFails("pwrite", size)) return -1;
  return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t offset) {
  return pwrite(fd, bytes, size, offset);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  if (IsFile(fd) && WriteFails("writev")) return -1;
  return syscall(SYS_writev, fd, parts, count);
}

int fsync(int fd) {
  if (IsFile(fd) && WriteFails("fsync")) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

int fdatasync(int fd) {
  if (IsFile(fd) && WriteFails("fdatasync")) return -1;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

int ftruncate(int fd, off_t size) {
  if (IsFile(fd) && WriteFails("ftruncate")) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (IsFile(fd) && WriteFails("fallocate")) return -1;
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size));
}

int fallocate64(int fd, int mode, off_t offset, off_t size) {
  return fallocate(fd, mode, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
  return fallocate(fd, 0, offset, size) == 0 ? 0 : errno;
}

int posix_fallocate64(int fd, off_t offset, off_t size) {
  return posix_fallocate(fd, offset, size);
}

int rename(const char* from, const char* to) {
  if (WriteFails("rename")) return -1;
  return static_cast<int>(
      syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  if (WriteFails("renameat")) return -1;
  return static_cast<int>(
      syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) {
  if (WriteFails("renameat2")) return -1;
  return static_cast<int>(
      syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int mkdir(const char* path, mode_t mode) {
  if (WriteFails("mkdir")) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int mkdirat(int folder, const char* path, mode_t mode) {
  if (WriteFails("mkdirat")) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, folder, path, mode));
}

int symlink(const char* target, const char* path) {
  if (WriteFails("symlink")) return -1;
  return static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, path));
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = sluice::testing::ModeOf(flags, more);
  va_end(more);
  return sluice::testing::Open(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = sluice::testing::ModeOf(flags, more);
  va_end(more);
  return sluice::testing::Open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = sluice::testing::ModeOf(flags, more);
  va_end(more);
  return sluice::testing::Open(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  return sluice::testing::OpenStream(path, mode, "fopen");
}

FILE* fopen64(const char* path, const char* mode) {
  return sluice::testing::OpenStream(path, mode, "fopen64");
}

}  // extern "C"
