#include "services/cli/cluster_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/base/text_file.h"

namespace sluice::cli {
namespace {

ClusterProcess ParseProcess(const Json& json) {
  ClusterProcess process;
  process.role = FindText(json, "role");
  process.index = static_cast<int>(FindInt(json, "index").value_or(0));
  process.pid = static_cast<int>(FindInt(json, "pid").value_or(0));
  process.metrics_address = FindText(json, "metrics_address");
  process.log = FindText(json, "log");
  for (const Json& word : FindList(json, "argv")) {
    if (word.is_string()) process.argv.push_back(word.get<std::string>());
  }
  const Json::array_t& addresses = FindList(json, "addresses");
  if (!addresses.empty() && addresses[0].is_string()) {
    process.address = addresses[0].get<std::string>();
  }
  return process;
}

// Returns the text of an open cluster.json. FAILED_PRECONDITION if neither this
// user nor root has written it: a cluster.json names processes to signal, files
// to remove, and an address for prompts and keys.
StatusOr<std::string> ReadTrusted(int file, const std::string& path) {
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    return Unavailable(path, ": ", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return InvalidArgument(path, " is no regular file");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return FailedPrecondition(
        path, " belongs to user ", status.st_uid, "; user ", ::geteuid(),
        " trusts a cluster.json of user ", ::geteuid(), " and of root alone");
  }
  std::string text;
  std::array<char, 8192> piece;
  ssize_t got = 0;
  while ((got = ::read(file, piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(got));
  }
  if (got < 0) return Unavailable(path, ": ", std::strerror(errno));
  return text;
}

// Returns the text of a run folder's cluster.json, as ReadTrusted. NOT_FOUND if
// there is no such file.
StatusOr<std::string> ReadFileOf(const std::string& run_dir,
                                 const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file >= 0) {
    StatusOr<std::string> text = ReadTrusted(file, path);
    ::close(file);
    return text;
  }
  if (errno != ENOENT && errno != ENOTDIR) {
    return Unavailable(path, ": ", std::strerror(errno));
  }
  return NotFound("no cluster runs in ", run_dir,
                  " (start one with sluice up, or name it: --run-dir DIR or "
                  "--url URL)");
}

// Returns the first key of a file of lines "key" or "name:key"; empty without
// one.
std::string FirstKey(const std::string& path) {
  const StatusOr<std::string> text =
      path.empty() ? StatusOr<std::string>("") : ReadTextFile(path);
  std::istringstream lines(text.ok() ? *text : "");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key.empty() || key[0] == '#') continue;
    if (key.find(':') + 1 == key.size()) words >> key;  // "name: key"
    return key.substr(key.find(':') + 1);
  }
  return "";
}

}  // namespace

std::string StateFolder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      state != nullptr && *state != '\0'
          ? std::string(state)
          : Cat(home == nullptr ? "" : home, "/.local/state");
  return base + "/sluice";
}

bool ClusterProcess::IsRunning() const {
  const StatusOr<std::string> text =
      ReadTextFile(Cat("/proc/", pid, "/cmdline"));
  std::string expected;
  for (const std::string& word : argv) expected += word + '\0';
  return !expected.empty() && text.ok() && *text == expected;
}

StatusOr<ClusterFile> ReadClusterFile(const std::string& given) {
  const std::string run_dir =
      given.empty() ? StateFolder() + "/default" : given;
  ClusterFile cluster;
  cluster.path = run_dir + "/cluster.json";
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadFileOf(run_dir, cluster.path));
  const StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Annotate(json.status(), cluster.path);
  if (!json->is_object()) {
    return InvalidArgument(cluster.path, ": not a JSON object");
  }
  cluster.url = FindText(*json, "url");
  cluster.model = FindText(*json, "model");
  cluster.created = FindText(*json, "created");
  if (const Json* options = FindMember(*json, "options")) {
    cluster.model_given = FindText(*options, "model");
    cluster.key_file = FindText(*options, "api_key_file");
    cluster.ready_timeout =
        FindInt(*options, "ready_timeout").value_or(cluster.ready_timeout);
    const Json* until_eof = FindMember(*options, "until_eof");
    cluster.until_eof = until_eof != nullptr && *until_eof == true;
  }
  if (const Json* supervisor = FindMember(*json, "supervisor")) {
    cluster.supervisor = ParseProcess(*supervisor);
  }
  for (const Json& process : FindList(*json, "processes")) {
    cluster.processes.push_back(ParseProcess(process));
  }
  for (const Json& host : FindList(*json, "hosts")) {
    for (const Json& process : FindList(host, "processes")) {
      cluster.remote.push_back(ParseProcess(process));
      cluster.remote.back().host = FindText(host, "name");
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

StatusOr<http::BaseUrl> FindGateway(const EndpointOptions& options) {
  std::string url = options.url;
  std::string api_key = options.api_key;
  if (url.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                            ReadClusterFile(options.run_dir));
    url = cluster.url;
    if (api_key.empty()) api_key = FirstKey(cluster.key_file);
  }
  SLUICE_ASSIGN_OR_RETURN(http::BaseUrl base, http::BaseUrl::Parse(url));
  base.api_key = api_key;
  return base;
}

}  // namespace sluice::cli
