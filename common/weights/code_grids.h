#ifndef SLUICE_COMMON_WEIGHTS_CODE_GRIDS_H_
#define SLUICE_COMMON_WEIGHTS_CODE_GRIDS_H_

#include <cstdint>

// The points of GGUF's IQ1, IQ2 and IQ3 formats: a code stands for the
// magnitudes of 8 elements, of 2 bits each, or of 4 elements, of 3 bits each,
// the first one lowest.
namespace sluice::weights {

// 8 elements: 0, 1 and 2 stand for 8, 25 and 43; in kIq1Grid for -1, 0 and 1.
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq1Grid[2048];
// 4 elements: kIq3XxsGrid's bits stand for kIq3XxsValues, kIq3SGrid's b for
// 2 b + 1.
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_CODE_GRIDS_H_
