#include "common/base/log_writer.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "common/base/log_line.h"

namespace sluice {
namespace {

constexpr auto kFlushAtExit = std::chrono::seconds(1);

// A child of fork() has no thread "log", and may find the lock taken.
std::atomic<bool> g_forked{false};

// Writes all of `text`, however long stderr takes nothing. False if it will
// never take it: closed, or its disk is full.
bool WriteWhole(std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(STDERR_FILENO, text.data(), text.size());
    if (bytes >= 0) {
      text.remove_prefix(static_cast<size_t>(bytes));
    } else if (errno == EAGAIN) {  // another process made it non-blocking
      pollfd one{STDERR_FILENO, POLLOUT, 0};
      ::poll(&one, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// The first lines of `text`: as many as a pipe takes at once, so that those of
// several processes stay apart; at least one.
std::string_view FirstLines(std::string_view text) {
  size_t end = text.size();
  if (end > PIPE_BUF) {
    end = text.rfind('\n', PIPE_BUF - 1);
    if (end == std::string_view::npos) end = text.find('\n');
    end = end == std::string_view::npos ? text.size() : end + 1;
  }
  return text.substr(0, end);
}

}  // namespace

LogWriter& LogWriter::Get() {
  static LogWriter* const writer = new LogWriter;
  return *writer;
}

LogWriter::LogWriter() {
  pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  std::atexit([] { FlushLog(kFlushAtExit); });
  // Signals are for the threads that wait for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  has_thread_ = pthread_create(&thread, nullptr, &LogWriter::Main, this) == 0;
  if (has_thread_) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LogWriter::Append(std::string_view line) {
  if (!has_thread_ || g_forked) {
    Write(line);
    return;
  }
  MutexLock lock(mutex_);
  if (missed_ > 0 || lines_.size() + writing_ + line.size() > kMaxBytes) {
    ++missed_;
    ++dropped_;
    return;
  }
  lines_.append(line);
  taken_.NotifyOne();
}

void LogWriter::Drop() {
  ++dropped_;
  if (!has_thread_ || g_forked) return;
  MutexLock lock(mutex_);
  ++missed_;
  taken_.NotifyOne();
}

bool LogWriter::Flush(Duration wait) {
  if (!has_thread_ || g_forked) return true;
  const TimePoint deadline = Clock::now() + wait;
  MutexLock lock(mutex_);
  while (!idle()) {
    if (!written_.WaitUntil(mutex_, deadline)) return idle();
  }
  return true;
}

void* LogWriter::Main(void* writer) {
  pthread_setname_np(pthread_self(), "log");
  static_cast<LogWriter*>(writer)->Run();
  return nullptr;
}

void LogWriter::Run() {
  std::string batch;
  uint64_t missed = 0;  // and not told of
  while (true) {
    {
      MutexLock lock(mutex_);
      writing_ = 0;
      if (idle()) written_.NotifyAll();
      while (idle()) taken_.Wait(mutex_);
      batch.clear();
      batch.swap(lines_);
      missed += std::exchange(missed_, 0);
      writing_ = std::max<size_t>(batch.size(), 1);
    }
    const uint64_t lost = Write(batch);
    missed += lost;
    if (lost > 0 || missed == 0) continue;
    if (TellOfMissed(missed)) missed = 0;
  }
}

bool LogWriter::TellOfMissed(uint64_t missed) {
  try {
    Write(FormatLogLine(
        LogLevel::kWarning,
        Cat(missed,
            " lines of the log were dropped: stderr did not take them, "
            "or there was too little memory")));
    return true;
  } catch (const std::exception&) {
    return false;  // the next line brings another try
  }
}

uint64_t LogWriter::Write(std::string_view lines) {
  uint64_t lost = 0;
  while (!lines.empty()) {
    const std::string_view piece = FirstLines(lines);
    lines.remove_prefix(piece.size());
    if (WriteWhole(piece)) continue;
    lost += static_cast<uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
  }
  dropped_ += lost;
  return lost;
}

}  // namespace sluice
