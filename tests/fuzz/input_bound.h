#ifndef SLUICE_TESTS_FUZZ_INPUT_BOUND_H_
#define SLUICE_TESTS_FUZZ_INPUT_BOUND_H_

#include <cstddef>

namespace sluice::fuzz {

// What one input may cost: see input_bound.cc. A target may say how often it
// went through the input, as a request of several choices does; the factor of
// the input's size is taken so often. 1 for each new input.
extern size_t g_passes;

}  // namespace sluice::fuzz

#endif  // SLUICE_TESTS_FUZZ_INPUT_BOUND_H_
