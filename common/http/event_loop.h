#ifndef SLUICE_COMMON_HTTP_EVENT_LOOP_H_
#define SLUICE_COMMON_HTTP_EVENT_LOOP_H_

#include <boost/asio/io_context.hpp>
#include <functional>

#include "common/http/http_server.h"

namespace sluice::http {

// Runs `io` on this thread until it has no more work. Before each event it
// calls `repair`, which returns false while something waits for a later call:
// then it is called again after 100 ms at most, also without an event. How long
// each event held the loop, in CPU time of the thread, goes into `stats`. An
// exception that no edge caught ends its event alone: it is counted and logged.
void RunEventLoop(boost::asio::io_context& io, HttpServerStats& stats,
                  const std::function<bool()>& repair);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EVENT_LOOP_H_
