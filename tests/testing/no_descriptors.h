#ifndef SLUICE_TESTS_TESTING_NO_DESCRIPTORS_H_
#define SLUICE_TESTS_TESTING_NO_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>

#include "common/base/check.h"

namespace sluice::testing {

// While it lives, this process can open no further file: accept gives EMFILE.
class NoDescriptors {
 public:
  NoDescriptors() {
    SLUICE_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = ::dup(0);
    SLUICE_CHECK(next >= 0 && ::close(next) == 0);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    SLUICE_CHECK(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// Processor time that this process has used, in seconds.
inline double ProcessorSeconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_NO_DESCRIPTORS_H_
