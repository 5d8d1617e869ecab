#ifndef SLUICE_COMMON_CONCURRENCY_NAMED_THREAD_H_
#define SLUICE_COMMON_CONCURRENCY_NAMED_THREAD_H_

#include <functional>
#include <string>
#include <thread>

namespace sluice {

// A thread with a name for debuggers, top and traces. The destructor joins it,
// so all that `body` uses must outlive this object.
class NamedThread {
 public:
  NamedThread() = default;  // no thread
  // The system shows the first 15 bytes of `name`.
  NamedThread(std::string name, std::function<void()> body);
  ~NamedThread();
  NamedThread(NamedThread&&) = default;
  // Joins the thread held so far.
  NamedThread& operator=(NamedThread&& other);

  bool joinable() const { return thread_.joinable(); }
  // Waits for the body to return. Does nothing without a thread. Not from the
  // thread itself.
  void Join();
  bool IsCurrent() const {
    return thread_.get_id() == std::this_thread::get_id();
  }

 private:
  std::thread thread_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_NAMED_THREAD_H_
