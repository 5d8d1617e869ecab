#include "kernels/context.h"

#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

const char* ToString(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

namespace cpu {

int NumTasks(const Context& context, int64_t work) {
  // About two microseconds of one core, a little above a hand-over between
  // two spinning threads.
  constexpr int64_t kMinWork = 64 * 1024;
  return work < kMinWork ? 1 : NumThreads(context);
}

Range PartOf(int64_t count, int index, int parts, int64_t align) {
  const int64_t groups = (count + align - 1) / align;
  const int64_t begin = groups * index / parts * align;
  const int64_t end = groups * (index + 1) / parts * align;
  return {begin < count ? begin : count, end < count ? end : count};
}

}  // namespace cpu
}  // namespace sluice::kernels
