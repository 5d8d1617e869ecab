#include <cstdio>
#include <memory>

#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/http/http_client.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr JsonLimits kTraceLimits = {.max_bytes = size_t{256} << 20};

StatusOr<std::string> FetchTrace(const http::BaseUrl& base,
                                 const std::string& id, const char* query) {
  SLUICE_ASSIGN_OR_RETURN(const http::HttpResponse response,
                          http::HttpGet(base, "/debug/traces/" + id + query));
  if (response.status == 200) return response.body;
  return Unavailable(http::ErrorText(response.status, response.body));
}

// Prints the parts of one choice's time.
void PrintTraceChoice(const Json& choice) {
  const double wall = choice.at("wall_us");
  const double sum = choice.at("sum_us");
  std::printf("choice %d: %.2f ms, parts %.2f ms (%.2f %%)\n",
              choice.at("index").get<int>(), wall / 1000, sum / 1000,
              wall > 0 ? 100 * sum / wall : 0.0);
  if (const auto lost = choice.value("incomplete_tokens", int64_t{0})) {
    std::printf("  %lld tokens have holes: traces of steps are missing\n",
                static_cast<long long>(lost));
  }
  std::printf("  %-14s %-10s %8s %12s %10s %8s\n", "part", "where", "times",
              "total ms", "mean us", "share");
  for (const Json& row : choice.at("summary")) {
    const double total = row.at("total_us");
    const double count = row.at("count");
    std::printf("  %-14s %-10s %8.0f %12.3f %10.1f %6.1f %%\n",
                row.at("part").get<std::string>().c_str(),
                row.at("where").get<std::string>().c_str(), count, total / 1000,
                total / count, wall > 0 ? 100 * total / wall : 0.0);
  }
}

void PrintTrace(const Json& trace) {
  std::printf("request %s: %.2f ms\n",
              trace.at("request_id").get<std::string>().c_str(),
              trace.at("wall_us").get<double>() / 1000);
  int index = 0;
  for (const Json& stage : trace.at("stages")) {
    std::printf("stage %d  %-22s layers %d to %d, clock %+.1f us (+- %.1f)\n",
                index++, stage.at("address").get<std::string>().c_str(),
                stage.at("first_layer").get<int>(),
                stage.at("last_layer").get<int>(),
                stage.at("clock_offset_us").get<double>(),
                stage.at("clock_error_us").get<double>());
  }
  for (const Json& choice : trace.at("choices")) PrintTraceChoice(choice);
}

struct TraceOptions {
  EndpointOptions endpoint;
  std::string id, chrome;
};

Status RunTrace(const TraceOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          FindGateway(options.endpoint));
  if (!options.chrome.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text,
                            FetchTrace(base, options.id, "?format=chrome"));
    return WriteTextFile(options.chrome, text);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          FetchTrace(base, options.id, ""));
  SLUICE_ASSIGN_OR_RETURN(const Json trace, ParseJson(text, kTraceLimits));
  try {
    PrintTrace(trace);
  } catch (const Json::exception& error) {
    return Internal("the answer is no trace: ", error.what());
  }
  return OkStatus();
}

}  // namespace

void AddTrace(CommandLine& sluice) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App& trace = sluice.Add("trace", "where a traced request's time went",
                               [options] { return RunTrace(*options); });
  trace.add_option("REQUEST-ID", options->id, "of a request that was traced")
      ->required();
  trace.add_option("--chrome", options->chrome,
                   "a file for Perfetto, in the place of the table");
  AddEndpoint(trace, options->endpoint);
}

}  // namespace sluice::cli
