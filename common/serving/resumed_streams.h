#ifndef SLUICE_COMMON_SERVING_RESUMED_STREAMS_H_
#define SLUICE_COMMON_SERVING_RESUMED_STREAMS_H_

#include <span>
#include <string_view>

#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::serving {

// The path of recent streams; the id of a stream's request follows.
inline constexpr std::string_view kStreamsPath = "/v1/streams/";

// Adds GET of a recent stream, which is answered as if the client had sent the
// stream's request again, in its dialect. `dialects` outlives the router.
void AddStreamsHandler(std::span<const Dialect> dialects, http::Router& router,
                       const ServingContext& context);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_RESUMED_STREAMS_H_
