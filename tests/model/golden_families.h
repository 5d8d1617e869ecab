#ifndef SLUICE_TESTS_MODEL_GOLDEN_FAMILIES_H_
#define SLUICE_TESTS_MODEL_GOLDEN_FAMILIES_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/model/pipeline.h"

namespace sluice::testing {

// A golden model of a family.
struct Family {
  const char* name;
  // A long-context RoPE's choice depends on the context: prompts [first, last)
  // in a stage of `context` positions.
  int32_t context = 0;
  size_t first = 0;
  size_t last = 4;
  // Layers that read another layer's keys and values stay on its stage: a
  // second stage begins here, and there is no third.
  int32_t second_stage = 0;

  // As a test's name.
  std::string Name() const;
  // Options of `stages` stages where the family can be cut so, else of fewer.
  PipelineOptions Cut(int32_t stages) const;
};

std::ostream& operator<<(std::ostream& out, const Family& family);

// The goldens of the families of golden_test.cc, which has more of each.
std::vector<Family> FirstGoldenFamilies();
// The goldens of all further families.
std::vector<Family> GoldenFamilies();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_GOLDEN_FAMILIES_H_
