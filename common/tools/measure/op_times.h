#ifndef SLUICE_COMMON_TOOLS_MEASURE_OP_TIMES_H_
#define SLUICE_COMMON_TOOLS_MEASURE_OP_TIMES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/device/make_backends.h"

namespace sluice::measure {

// One operation of a step as a backend ran it.
struct OpTime {
  std::string_view op;  // "QKV", "attention": see OpOrder
  std::string shape;    // of what it reads: "3072x2048", "32 heads of 64"
  std::string type;     // of the weights or of keys and values; may be empty
  int64_t tokens = 0;   // rows of activations
  double seconds = 0;
  double bytes = 0;       // of weights, or of keys and values, that it reads
  double operations = 0;  // multiplications and additions of its products
  bool integer = false;   // the products are of codes, not of F32
};

// The operations of one step, in order.
struct StepOps {
  std::vector<OpTime> ops;
  int64_t joins = 0;  // times that the team's threads met
};

// Returns the names of OpTime::op in the order of a step.
const std::vector<std::string_view>& OpOrder();

// Returns a factory whose backend, over this machine's CPU, fills `to` anew in
// each step. The results are those of MakeBackends bit for bit; a norm before
// a product is an operation of its own. `to` outlives the backend. The factory
// refuses several ranks: INVALID_ARGUMENT.
BackendFactory TimedBackends(StepOps* to);

}  // namespace sluice::measure

#endif  // SLUICE_COMMON_TOOLS_MEASURE_OP_TIMES_H_
