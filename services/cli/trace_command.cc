#include <cstdio>
#include <fstream>

#include "common/base/json.h"
#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"

namespace sluice::cli {
namespace {

constexpr JsonLimits kTraceLimits = {.max_bytes = size_t{256} << 20};

StatusOr<std::string> FetchTrace(const BaseUrl& base, const std::string& id,
                                 const char* query) {
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          HttpGet(base, "/debug/traces/" + id + query));
  if (response.status == 200) return response.body;
  return Unavailable(ErrorText(response.status, response.body));
}

// One choice: where its time went, per part.
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

}  // namespace

Status RunTrace(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("trace", words));
  if (arguments.words().size() != 1) {
    return InvalidArgument("trace takes one request's id, got ",
                           arguments.words().size(), " words");
  }
  const std::string& id = arguments.words()[0];
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(arguments));
  if (const auto path = arguments.String("chrome")) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text,
                            FetchTrace(base, id, "?format=chrome"));
    std::ofstream out(*path);
    out << text;
    out.close();
    return out ? OkStatus() : Unavailable(*path, " cannot be written");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text, FetchTrace(base, id, ""));
  SLUICE_ASSIGN_OR_RETURN(const Json trace, ParseJson(text, kTraceLimits));
  try {
    PrintTrace(trace);
  } catch (const Json::exception& error) {
    return Internal("the answer is no trace: ", error.what());
  }
  return OkStatus();
}

}  // namespace sluice::cli
