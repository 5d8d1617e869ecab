#ifndef SLUICE_TESTS_MODEL_FAMILY_GGUF_H_
#define SLUICE_TESTS_MODEL_FAMILY_GGUF_H_

#include <string>

#include "common/weights/model_file.h"
#include "tests/model/gguf_cases.h"

namespace sluice::testing {

// Returns a golden model as the bytes of a GGUF: names, keys, stacked experts
// and orders of rows as llama.cpp's converter gives them.
std::string FamilyGguf(const weights::ModelFile& from, const GgufCase& family);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_FAMILY_GGUF_H_
