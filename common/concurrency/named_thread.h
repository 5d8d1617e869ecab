#ifndef SLUICE_COMMON_CONCURRENCY_NAMED_THREAD_H_
#define SLUICE_COMMON_CONCURRENCY_NAMED_THREAD_H_

#include <functional>
#include <string>
#include <thread>

namespace sluice {

// A thread with a name that debuggers, top and traces show. Whatever `body`
// uses must outlive this object, which joins when it is destroyed.
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
  // Waits for the body to return. No effect without a thread. Never from the
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
