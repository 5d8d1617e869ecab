#ifndef SLUICE_COMMON_HTTP_EVENT_LOOP_H_
#define SLUICE_COMMON_HTTP_EVENT_LOOP_H_

#include <boost/asio/io_context.hpp>

#include "common/http/http_server.h"

namespace sluice::http {

// Runs `io` on this thread until it has no more work. How long each event held
// the loop, in CPU time of the thread, goes into `stats`. An exception that no
// edge caught ends its event alone: it is counted and logged.
void RunEventLoop(boost::asio::io_context& io, HttpServerStats& stats);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EVENT_LOOP_H_
