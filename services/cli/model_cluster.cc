#include "services/cli/model_cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "services/cli/launcher.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultModel[] = "default";
constexpr size_t kMaxFolderName = 40;
constexpr int kMaxFolders = 1000;  // of one model's clusters at the same time

constexpr int kLookMilliseconds = 200;  // between looks at one that loads

// Options of `up` that ModelCluster gives by itself.
constexpr std::string_view kOwnOptions[] = {
    "--model", "--run-dir", "--detach", "--quiet", "--until-eof", "--help"};

Status CheckUpOptions(const Words& words) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    for (const std::string_view own : kOwnOptions) {
      if (name == own) {
        return InvalidArgument(name, " cannot stand behind --: this command ",
                               "gives it to up by itself");
      }
    }
  }
  return OkStatus();
}

// Returns a descriptor with the lock of a file in `folder`; negative if another
// process has it.
int TakeLock(const fs::path& folder, const char* name) {
  const int file =
      ::open((folder / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  ::close(file);
  return -1;
}

// Returns whether a cluster is in `folder`, or is being started or stopped.
bool IsInUse(const fs::path& folder) {
  const int lock = TakeLock(folder, "lock");  // of `up` and `down`
  if (lock < 0) return true;
  ::close(lock);
  const StatusOr<ClusterFile> file = ReadClusterFile(folder.string());
  if (!file.ok()) return file.status().code() != StatusCode::kNotFound;
  // What runs on other hosts is not seen here.
  return !file->remote.empty() ||
         KnownCluster{"", folder.string(), *file}.IsAlive();
}

struct TakenFolder {
  std::string name, run_dir;
  int lock;
};

// Takes a run folder for the model, which no other process takes until the lock
// is closed. Logs of a cluster that has ended may be in it.
StatusOr<TakenFolder> TakeFolder(const std::string& model) {
  const std::string wanted = FolderNameFor(model);
  for (int i = 1; i <= kMaxFolders; ++i) {
    const std::string name = i == 1 ? wanted : Cat(wanted, "-", i);
    const fs::path folder = fs::path(StateFolder()) / name;
    std::error_code error;
    if (fs::create_directories(folder, error)) {
      fs::permissions(folder, fs::perms::owner_all, error);
    }
    if (error) return Unavailable(folder.string(), ": ", error.message());
    const int lock = TakeLock(folder, "run.lock");
    if (lock < 0 && errno != EWOULDBLOCK) {
      return Unavailable(folder.string(), "/run.lock: ", std::strerror(errno));
    }
    if (lock < 0) continue;
    if (!IsInUse(folder)) return TakenFolder{name, folder.string(), lock};
    ::close(lock);
  }
  return ResourceExhausted(kMaxFolders, " clusters of ", wanted, " run");
}

// Returns SLUICE_BUILD_DIR=.. where this binary is in a build folder with those
// of the services: they are taken as they are. Else nothing.
Words BuildFolder() {
  if (std::getenv("SLUICE_BUILD_DIR") != nullptr) return {};
  std::error_code error;
  const fs::path services =
      fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const std::string service : {"gateway", "stage"}) {
    if (!fs::exists(services / service / ("sluice-" + service), error)) {
      return {};
    }
  }
  return {"SLUICE_BUILD_DIR=" + services.parent_path().string()};
}

// Runs a command of the launcher to its end, without its words.
void RunQuietly(Words words, const sigset_t& mask) {
  const StatusOr<Words> argv = LauncherCommand(std::move(words));
  if (!argv.ok()) return;
  const auto child = ChildProcess::Start(*argv, {mask, {}});
  if (child.ok()) (*child)->Wait();
}

}  // namespace

StatusOr<bool> AwaitReady(const KnownCluster& cluster, Interrupts& interrupts) {
  ClusterState look = LookAt(cluster);
  if (look.state != "loading") return look.state == "ready";
  const char* name = cluster.name.c_str();
  std::fprintf(stderr, "waiting for %s, which loads the model\n", name);
  const auto limit = static_cast<double>(cluster.file.ready_timeout);
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> waited{};
  while (look.state == "loading" && waited.count() < limit) {
    if (interrupts.Wait(-1, 0, kLookMilliseconds) ==
        Interrupts::Woken::kSignal) {
      return InterruptedBy(interrupts.Take());
    }
    look = LookAt(cluster);
    waited = std::chrono::steady_clock::now() - begin;
  }
  if (look.state == "ready") return true;
  std::fprintf(stderr,
               "%s is not used: it is %s after %.0f s, its --ready-timeout is "
               "%.0f s (%s)\n",
               name, look.state.c_str(), waited.count(), limit,
               look.why.c_str());
  return false;
}

bool Serves(const KnownCluster& cluster, const std::string& model) {
  const ClusterFile& file = cluster.file;
  if (model == kDefaultModel) {
    // A machine of `up --hosts` notes its part of a cluster without a model.
    return file.model_given.empty() && file.remote.empty() &&
           fs::path(file.model).filename() == kDefaultModelFile;
  }
  std::error_code error;
  // A path goes before a hub's model of that name, as for `up`.
  if (fs::exists(model, error)) {
    return fs::equivalent(model, file.model, error);
  }
  return model == file.model_given;
}

std::string FolderNameFor(const std::string& model) {
  std::string name = model;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (name.ends_with("/.") || name == "." || name.ends_with("..")) {
    name = fs::absolute(name).lexically_normal().parent_path().string();
  }
  name = name.substr(name.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  name = name.substr(0, kMaxFolderName);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!plain) c = '-';
  }
  name.erase(0, name.find_first_not_of(".-"));
  // The default run folder is another one.
  return name.empty() || name == kDefaultModel ? "default-model" : name;
}

StatusOr<std::unique_ptr<ModelCluster>> ModelCluster::Open(
    const ModelClusterOptions& options, Interrupts& interrupts) {
  SLUICE_RETURN_IF_ERROR(CheckUpOptions(options.up));
  std::vector<std::string> problems;
  for (const KnownCluster& known : ListClusters(problems)) {
    // A cluster that ends with its owner is no one else's.
    if (!options.up.empty() || known.file.until_eof ||
        !Serves(known, options.model)) {
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool ready, AwaitReady(known, interrupts));
    if (!ready) continue;
    auto cluster = std::unique_ptr<ModelCluster>(
        new ModelCluster(interrupts, known.name, known.run_dir));
    SLUICE_RETURN_IF_ERROR(cluster->Connect(options.api_key));
    return cluster;
  }
  SLUICE_ASSIGN_OR_RETURN(const TakenFolder folder, TakeFolder(options.model));
  auto cluster = std::unique_ptr<ModelCluster>(
      new ModelCluster(interrupts, folder.name, folder.run_dir));
  cluster->lock_ = folder.lock;
  SLUICE_RETURN_IF_ERROR(cluster->Start(options));
  return cluster;
}

ModelCluster::~ModelCluster() {
  End();
  if (lock_ >= 0) ::close(lock_);
}

Status ModelCluster::Start(const ModelClusterOptions& options) {
  Words words = {"up", "--run-dir", run_dir_, "--quiet"};
  words.push_back(options.keep ? "--detach" : "--until-eof");
  if (!options.keep) words.insert(words.end(), {"--port", "0"});
  if (options.model != kDefaultModel) {
    words.insert(words.end(), {"--model", options.model});
  }
  if (options.up.empty()) words.insert(words.end(), {"--stages", "1"});
  words.insert(words.end(), options.up.begin(), options.up.end());
  SLUICE_ASSIGN_OR_RETURN(const Words argv, LauncherCommand(std::move(words)));
  SLUICE_ASSIGN_OR_RETURN(
      launcher_,
      ChildProcess::Start(argv, {interrupts_.mask_before(), BuildFolder()}));
  SLUICE_RETURN_IF_ERROR(AwaitAddress(options));
  SLUICE_RETURN_IF_ERROR(Connect(options.api_key));
  if (options.keep) {
    launcher_ = nullptr;
    std::fprintf(stderr,
                 "%s goes on at http://%s:%s; stop it with: sluice stop %s\n",
                 options.model.c_str(), base_.host.c_str(), base_.port.c_str(),
                 name_.c_str());
  }
  return OkStatus();
}

Status ModelCluster::AwaitAddress(const ModelClusterOptions& options) {
  // With --detach the end of the output tells that the cluster is in good
  // hands.
  while (options.keep || launcher_->text().find('\n') == std::string::npos) {
    if (interrupts_.Wait(launcher_->output_fd(), POLLIN) ==
        Interrupts::Woken::kSignal) {
      const int signal = interrupts_.Take();
      launcher_->Signal(SIGTERM);
      End();
      return InterruptedBy(signal);
    }
    if (!launcher_->ReadOutput()) {
      const int code = std::exchange(launcher_, nullptr)->Wait();
      if (code == 0) return OkStatus();
      return WithExitCode(
          Unavailable("no cluster for ", options.model, ": the launcher ended ",
                      "with exit code ", code, ", see above (sluice logs ",
                      name_, " shows the logs)"),
          code);
    }
  }
  return OkStatus();
}

Status ModelCluster::Connect(const std::string& api_key) {
  EndpointOptions endpoint;
  endpoint.run_dir = run_dir_;
  endpoint.api_key = api_key;
  SLUICE_ASSIGN_OR_RETURN(base_, FindGateway(endpoint));
  return OkStatus();
}

void ModelCluster::End() {
  if (launcher_ == nullptr) return;
  launcher_->CloseInput();
  for (bool told = true; told;) {
    // The output ends with the launcher; a signal makes haste.
    if (interrupts_.Wait(launcher_->output_fd(), POLLIN) ==
        Interrupts::Woken::kSignal) {
      interrupts_.Take();
      launcher_->Signal(SIGINT);
    } else {
      told = launcher_->ReadOutput();
    }
  }
  launcher_->Wait();
  launcher_ = nullptr;
  std::error_code error;
  if (fs::exists(run_dir_ + "/cluster.json", error)) {
    // The launcher was killed.
    RunQuietly({"down", "--run-dir", run_dir_}, interrupts_.mask_before());
  }
}

}  // namespace sluice::cli
