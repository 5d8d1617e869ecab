#ifndef SLUICE_COMMON_SERVING_DIALECT_H_
#define SLUICE_COMMON_SERVING_DIALECT_H_

#include <span>
#include <string_view>

#include "common/http/error_answer.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/endpoint.h"

namespace sluice::serving {

// A dialect of HTTP: what a server of several needs of each. A value; its
// functions are pure, for any thread.
struct Dialect {
  std::span<const Endpoint> endpoints;
  // Adds the other routes; null for a dialect that has endpoints alone.
  void (*add_others)(http::Router& router, const ServingContext& context);
  // Returns whether the client of `request`, which may have any path, speaks
  // this dialect. Null for the default dialect: clients speak it that speak no
  // other.
  bool (*is_spoken)(const http::HttpRequest& request);
  // Returns whether an answer to a request with `body` surely needs no grammar.
  bool (*is_plain)(std::string_view body);
  http::ClientFormat format;
};

// Adds the routes of `dialects`.
void AddDialects(std::span<const Dialect> dialects, http::Router& router,
                 const ServingContext& context);
// Returns the endpoint of a path that generates; null for another path.
const Endpoint* FindEndpoint(std::span<const Dialect> dialects,
                             std::string_view path);
// Returns the dialect that the client of `request` speaks: that of the endpoint
// at its path or, where the request resumes a stream, of the stream's endpoint;
// else the first that is_spoken tells. The last of `dialects` is the default.
const Dialect& DialectOf(std::span<const Dialect> dialects,
                         const http::HttpRequest& request);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_DIALECT_H_
