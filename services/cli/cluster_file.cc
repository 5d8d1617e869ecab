#include "services/cli/cluster_file.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/base/json.h"

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

}  // namespace

bool ClusterProcess::IsRunning() const {
  std::ifstream in(Cat("/proc/", pid, "/cmdline"), std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  std::string expected;
  for (const std::string& word : argv) expected += word + '\0';
  return !expected.empty() && text.str() == expected;
}

std::string RunDir(const Arguments& arguments) {
  if (const auto given = arguments.String("run-dir")) return *given;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      state != nullptr && *state != '\0'
          ? std::string(state)
          : Cat(home == nullptr ? "" : home, "/.local/state");
  return base + "/sluice/default";
}

StatusOr<ClusterFile> ReadClusterFile(const std::string& run_dir) {
  ClusterFile cluster;
  cluster.path = run_dir + "/cluster.json";
  std::ifstream in(cluster.path, std::ios::binary);
  if (!in) {
    return NotFound("no cluster runs in ", run_dir,
                    " (start one with deploy/local/up, or name it: --run-dir "
                    "DIR or --url URL)");
  }
  std::ostringstream text;
  text << in.rdbuf();
  const StatusOr<Json> json = ParseJson(text.str());
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

StatusOr<BaseUrl> FindGateway(const Arguments& arguments) {
  std::string url;
  if (const auto given = arguments.String("url")) {
    url = *given;
  } else {
    SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                            ReadClusterFile(RunDir(arguments)));
    url = cluster.url;
  }
  SLUICE_ASSIGN_OR_RETURN(BaseUrl base, BaseUrl::Parse(url));
  base.api_key = ApiKey(arguments);
  return base;
}

StatusOr<BaseUrl> OtherEndpoint(const Arguments& arguments) {
  SLUICE_ASSIGN_OR_RETURN(
      BaseUrl base, BaseUrl::Parse(arguments.String("other").value_or("")));
  base.api_key = arguments.String("other-api-key").value_or("");
  return base;
}

std::string ApiKey(const Arguments& arguments) {
  if (const auto key = arguments.String("api-key")) return *key;
  const char* key = std::getenv("SLUICE_API_KEY");
  return key == nullptr ? "" : key;
}

StatusOr<std::string> ServedModelId(const BaseUrl& base) {
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          HttpGet(base, "/v1/models"));
  if (response.status != 200) {
    return FailedPrecondition(ErrorText(response.status, response.body));
  }
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(response.body));
  if (json.is_object() && json.contains("data") && json["data"].is_array() &&
      !json["data"].empty() && json["data"][0].is_object()) {
    return Text(json["data"][0], "id");
  }
  return Internal("/v1/models lists no model: ", response.body);
}

}  // namespace sluice::cli
