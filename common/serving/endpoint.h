#ifndef SLUICE_COMMON_SERVING_ENDPOINT_H_
#define SLUICE_COMMON_SERVING_ENDPOINT_H_

#include <memory>
#include <string_view>

#include "common/http/exchange.h"
#include "common/serving/context.h"

namespace sluice::serving {

// A path of a dialect whose requests generate.
struct Endpoint {
  std::string_view path;  // of POST
  // Answers a request whose body is there. On the exchange's loop.
  void (*run)(const ServingContext& context,
              std::shared_ptr<http::Exchange> exchange);
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ENDPOINT_H_
