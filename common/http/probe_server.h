#ifndef SLUICE_COMMON_HTTP_PROBE_SERVER_H_
#define SLUICE_COMMON_HTTP_PROBE_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/http/http_server.h"

namespace sluice::http {

// The answer of /readyz: 200 if `ready`, else 503; `json` is the body.
struct Readiness {
  bool ready = false;
  std::string json = "{}";
};

// The pages of a process on its own port. The server's thread calls the
// functions; they must not block.
struct ProbeOptions {
  std::string listen = "127.0.0.1:0";    // port 0: choose one, see port()
  std::function<Readiness()> readiness;  // empty: always ready
  // Answers by path ("/metrics").
  std::map<std::string, std::function<HttpResponse()>, std::less<>> pages;
};

// Starts a server for probes and scrapes: GET and HEAD of /livez, /readyz and
// the pages, one answer per connection. The server has one thread, "metrics-0",
// which no work of the process can delay. Of 64 connections the one that has
// been silent longest makes room for another; a request that takes more than
// 5 s is dropped. Errors as HttpServer::Start.
StatusOr<std::unique_ptr<HttpServer>> StartProbeServer(ProbeOptions options);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_PROBE_SERVER_H_
