#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "common/http/http_client.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr int kMaxProbeSeconds = 3600;

struct ProbeCommandOptions {
  std::string url;
  int timeout = 5;
};

// Prints the page. FAILED_PRECONDITION unless the status is 200.
Status RunProbe(const ProbeCommandOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          http::BaseUrl::Parse(options.url));
  const size_t scheme = options.url.find("://");
  const size_t path =
      options.url.find('/', scheme == std::string::npos ? 0 : scheme + 3);
  const std::string target =
      path == std::string::npos ? "/readyz" : options.url.substr(path);
  SLUICE_ASSIGN_OR_RETURN(
      const http::HttpResponse response,
      http::HttpGet(base, target, std::chrono::seconds(options.timeout)));
  if (response.status != 200) {
    return FailedPrecondition(options.url, ": status ", response.status, ", ",
                              response.body);
  }
  std::printf("%s\n", response.body.c_str());
  return OkStatus();
}

}  // namespace

void AddProbe(CommandLine& sluice) {
  const auto options = std::make_shared<ProbeCommandOptions>();
  CLI::App& probe = sluice.Add("probe", "is a process ready? for health checks",
                               [options] { return RunProbe(*options); });
  probe
      .add_option("ADDRESS", options->url,
                  "of a page, as http://127.0.0.1:9100/readyz; without a path "
                  "/readyz")
      ->required();
  probe
      .add_option("--timeout", options->timeout,
                  "seconds until the answer must be there")
      ->check(Within(1, kMaxProbeSeconds))
      ->capture_default_str();
}

}  // namespace sluice::cli
