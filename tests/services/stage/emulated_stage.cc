// sluice-stage whose ranks compute on emulated GPUs, one for each, connected by
// the library that stands for NCCL. Of the device's options it takes --device
// cpu alone. $EMULATED_GPU_BYTES is the memory of each GPU.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "services/stage/stage_main.h"
#include "tests/device/cuda/emulated_gpus.h"

int main(int argc, char** argv) {
  static sluice::testing::FakeNccl plan;
  sluice::CommunicatorOptions links;
  links.link = "nccl";
  links.nccl = sluice::testing::UseFakeNccl(&plan);
  std::vector<uint64_t> memory;
  const char* const bytes = std::getenv("EMULATED_GPU_BYTES");
  if (bytes != nullptr) memory.push_back(std::strtoull(bytes, nullptr, 10));
  return sluice::stage::StageMain(
      argc, argv, sluice::testing::RankedBackends(links, memory));
}
