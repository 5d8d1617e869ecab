// sluice-stage whose ranks compute on emulated GPUs, one for each, connected by
// the library that stands for NCCL. Of the device's options it takes --device
// cpu alone.
#include "services/stage/stage_main.h"
#include "tests/device/cuda/emulated_gpus.h"

int main(int argc, char** argv) {
  static sluice::testing::FakeNccl plan;
  sluice::CommunicatorOptions links;
  links.link = "nccl";
  links.nccl = sluice::testing::UseFakeNccl(&plan);
  return sluice::stage::StageMain(argc, argv,
                                  sluice::testing::RankedBackends(links));
}
