#include "common/concurrency/named_thread.h"

#include <pthread.h>

#include <utility>

#include "common/base/check.h"

namespace sluice {
namespace {

constexpr size_t kMaxNameBytes = 15;  // pthread_setname_np's limit

}  // namespace

NamedThread::NamedThread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        pthread_setname_np(pthread_self(),
                           name.substr(0, kMaxNameBytes).c_str());
        body();
      }) {}

NamedThread::~NamedThread() { Join(); }

NamedThread& NamedThread::operator=(NamedThread&& other) {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

void NamedThread::Join() {
  if (!thread_.joinable()) return;
  SLUICE_CHECK(!IsCurrent());
  thread_.join();
}

}  // namespace sluice
