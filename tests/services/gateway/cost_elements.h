#ifndef SLUICE_TESTS_SERVICES_GATEWAY_COST_ELEMENTS_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_COST_ELEMENTS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace sluice::gateway {

// One way in which a request can grow: `make(n)` is a body, or a path, with n
// of something, and n goes from `small` to 2 * small.
struct CostElement {
  std::string name;   // "chat: messages, count"
  std::string field;  // of known_fields.h that it grows; empty: of none
  std::string path;   // where the body goes; empty: make gives the path
  std::function<std::string(size_t)> make;
  size_t small = 0;
  int status = 200;     // what it is answered with
  bool traced = false;  // the request's trace is asked for too
};

// Every repeated or nested element of every endpoint. Each field of
// known_fields.h has at least a generic one: whatever is put in its place.
std::vector<CostElement> CostElements();

// Fields whose values have no size, so that the generic element is enough.
const std::vector<std::string>& FieldsWithoutSize();

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_COST_ELEMENTS_H_
