#ifndef SLUICE_TESTS_GPU_CHECKED_SHAPES_H_
#define SLUICE_TESTS_GPU_CHECKED_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/device/cuda/device_ops.h"

namespace sluice::testing {

// Shapes, and which operations are looked at with them.
struct Shapes {
  std::string name;
  OpSizes sizes;
  std::vector<std::string> ops;  // beginnings of names; none: all operations
  int times = 3;                 // that an operation repeats itself
};

// Small sizes around which kernels change: one token behind more than a chunk
// of positions, or several tokens behind few.
OpSizes Boundaries(int64_t tokens);
// Llama 3.1 8B's at batch 1 and for a piece of a prompt, but for a quarter of
// its vocabulary; few experts.
OpSizes Large(int64_t tokens);

// What canonical numerics are checked with, or fast ones; `small`: for tools
// that make a device slow.
std::vector<Shapes> CheckedShapes(bool small, bool fast);
// Of so many tokens, and groups of as many of an expert, that products in
// groups of warps multiply them where those are asked for.
std::vector<Shapes> ShapesInGroups();

std::vector<DeviceOp> OpsOf(const Shapes& shapes);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_CHECKED_SHAPES_H_
