// sluice-stage: serves a range of a model's layers. See README.md.
#include "services/stage/stage_main.h"

int main(int argc, char** argv) {
  return sluice::stage::StageMain(argc, argv, sluice::MakeBackends);
}
