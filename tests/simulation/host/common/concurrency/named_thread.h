#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_CONCURRENCY_NAMED_THREAD_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_CONCURRENCY_NAMED_THREAD_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/simulation/fibre.h"

namespace sluice {

// A thread of the process whose fibre makes it: another fibre.
class NamedThread {
 public:
  NamedThread() = default;
  NamedThread(std::string name, std::function<void()> body)
      : joint_(simulation::SpawnHere(std::move(name), std::move(body))) {}
  ~NamedThread() { Join(); }
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&& other) {
    Join();
    joint_ = std::exchange(other.joint_, nullptr);
    return *this;
  }

  bool joinable() const { return joint_ != nullptr; }
  void Join() {
    if (joint_ == nullptr) return;
    while (!joint_->done) joint_->waiting.Wait();
    joint_ = nullptr;
  }
  bool IsCurrent() const { return joint_ != nullptr && joint_->IsCurrent(); }

 private:
  std::shared_ptr<simulation::Joint> joint_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_CONCURRENCY_NAMED_THREAD_H_
