#include "services/cli/cluster_file.h"

#include <cstdlib>
#include <sstream>

#include "common/base/json.h"
#include "services/cli/json_member.h"
#include "services/cli/text_file.h"

namespace sluice::cli {
namespace {

// `object[key]` as text; empty if it is absent or of another type.
std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
}

int Integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int>()
                                                             : 0;
}

ClusterProcess ParseProcess(const Json& json) {
  ClusterProcess process;
  if (!json.is_object()) return process;
  process.role = Text(json, "role");
  process.index = Integer(json, "index");
  process.pid = Integer(json, "pid");
  process.metrics_address = Text(json, "metrics_address");
  process.log = Text(json, "log");
  const auto argv = json.find("argv");
  if (argv != json.end() && argv->is_array()) {
    for (const Json& word : *argv) {
      if (word.is_string()) process.argv.push_back(word.get<std::string>());
    }
  }
  const auto addresses = json.find("addresses");
  if (addresses != json.end() && addresses->is_array() && !addresses->empty() &&
      addresses->front().is_string()) {
    process.address = addresses->front().get<std::string>();
  }
  return process;
}

std::string DefaultRunDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      state != nullptr && *state != '\0'
          ? std::string(state)
          : Cat(home == nullptr ? "" : home, "/.local/state");
  return base + "/sluice/default";
}

}  // namespace

bool ClusterProcess::IsRunning() const {
  const StatusOr<std::string> text = ReadText(Cat("/proc/", pid, "/cmdline"));
  std::string expected;
  for (const std::string& word : argv) expected += word + '\0';
  return !expected.empty() && text.ok() && *text == expected;
}

StatusOr<ClusterFile> ReadClusterFile(const std::string& given) {
  const std::string run_dir = given.empty() ? DefaultRunDir() : given;
  ClusterFile cluster;
  cluster.path = run_dir + "/cluster.json";
  const StatusOr<std::string> text = ReadText(cluster.path);
  if (!text.ok()) {
    return NotFound("no cluster runs in ", run_dir,
                    " (start one with deploy/local/up, or name it: --run-dir "
                    "DIR or --url URL)");
  }
  const StatusOr<Json> json = ParseJson(*text);
  if (!json.ok()) return Annotate(json.status(), cluster.path);
  if (!json->is_object()) {
    return InvalidArgument(cluster.path, ": not a JSON object");
  }
  cluster.url = Text(*json, "url");
  cluster.model = Text(*json, "model");
  const auto processes = json->find("processes");
  if (processes != json->end() && processes->is_array()) {
    for (const Json& process : *processes) {
      cluster.processes.push_back(ParseProcess(process));
    }
  }
  return cluster;
}

void AddRunDir(CLI::App& app, EndpointOptions& options) {
  app.add_option("--run-dir", options.run_dir,
                 "the cluster's run folder, unless it is the default one");
  app.add_option("--api-key", options.api_key, "where the server has keys");
}

void AddEndpoint(CLI::App& app, EndpointOptions& options) {
  app.add_option("--url", options.url, "another server than the cluster's");
  AddRunDir(app, options);
}

StatusOr<BaseUrl> FindGateway(const EndpointOptions& options) {
  std::string url = options.url;
  if (url.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                            ReadClusterFile(options.run_dir));
    url = cluster.url;
  }
  SLUICE_ASSIGN_OR_RETURN(BaseUrl base, BaseUrl::Parse(url));
  base.api_key = options.api_key;
  return base;
}

StatusOr<std::string> ServedModelId(const BaseUrl& base) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, GetJson(base, "/v1/models"));
  const Json* data = FindMember(json, "data");
  if (data != nullptr && data->is_array() && !data->empty() &&
      (*data)[0].is_object()) {
    return Text((*data)[0], "id");
  }
  return Internal("/v1/models lists no model: ", DumpJson(json));
}

StatusOr<std::vector<int64_t>> Tokenize(const BaseUrl& base, const Json& body) {
  SLUICE_ASSIGN_OR_RETURN(const Json answer, PostJson(base, "/tokenize", body));
  const Json* tokens = FindMember(answer, "tokens");
  std::vector<int64_t> ids;
  if (tokens == nullptr || !tokens->is_array()) {
    return FailedPrecondition("/tokenize gave no tokens");
  }
  for (const Json& id : *tokens) {
    if (!id.is_number_integer()) {
      return FailedPrecondition("/tokenize gave no ids");
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

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
