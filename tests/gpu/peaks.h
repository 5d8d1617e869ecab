#ifndef SLUICE_TESTS_GPU_PEAKS_H_
#define SLUICE_TESTS_GPU_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace sluice::kernels::cuda {
class Runtime;
}  // namespace sluice::kernels::cuda

namespace sluice::testing {

// How much is done for a figure.
struct PeakSizes {
  int rounds = 10;        // of which the best one counts; at least 3
  int again = 4;          // launches or lists of a round, one behind the other
  int32_t times = 16384;  // that a launch multiplies its matrices
  int launches = 200;     // of a list
};

// The rates of matrix units, and what launches cost.
std::vector<std::string> PeakNames();

// Returns what a device gives at one of them: "as_computed", whether all
// results are those of plain C++, or "left_out", why the device has no such
// units, and
//   of matrix units: tflops (BF16) or tops (bytes), additions and
//     multiplications a second, and ms of a launch;
//   of launches, each of which reads what the one before has written: blocks;
//     begin_early, whether a graph's kernels begin before those ahead end;
//     eager_us and graph_us, of a launch that is begun by itself, and in a
//     list that is replayed as a graph, lists behind each other; and by the
//     number of launches of a list that comes alone host_us, until it is
//     submitted, and us, until it has ended. A list of one launch is no graph.
Json PeakOf(kernels::cuda::Runtime& runtime, const std::string& name,
            const PeakSizes& sizes);
// The same of a GPU, by its number or id.
Json GpuPeak(const std::string& gpu, const std::string& name);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_PEAKS_H_
