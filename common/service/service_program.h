#ifndef SLUICE_COMMON_SERVICE_SERVICE_PROGRAM_H_
#define SLUICE_COMMON_SERVICE_SERVICE_PROGRAM_H_

#include <string>

#include "common/base/option_row.h"

namespace sluice {

// The command line of a service as data.
struct ServiceProgram {
  std::string name;     // "stage", of sluice-stage
  std::string about;    // what it does, a line
  std::string example;  // a command line
  OptionRows options;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_SERVICE_PROGRAM_H_
