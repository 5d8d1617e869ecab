#include "services/cli/metrics_text.h"

#include <cstdlib>
#include <sstream>

namespace sluice::cli {

Metrics ParseMetrics(const std::string& text) {
  Metrics sums;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    sums[line.substr(0, line.find_first_of("{ "))] +=
        std::strtod(line.c_str() + space, nullptr);
  }
  return sums;
}

StatusOr<Metrics> FetchMetrics(const BaseUrl& base) {
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          HttpGet(base, "/metrics", std::chrono::seconds(2)));
  if (response.status != 200) {
    return FailedPrecondition(ErrorText(response.status, response.body));
  }
  return ParseMetrics(response.body);
}

}  // namespace sluice::cli
