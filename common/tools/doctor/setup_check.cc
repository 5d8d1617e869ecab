#include "common/tools/doctor/setup_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/cat.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "common/weights/model_file.h"
#include "common/weights/packed_store.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLittleDisk = uint64_t{2} << 30;

// A program that deploy/local/up needs, and the package that has it.
struct Tool {
  const char* program;
  const char* package;
};
constexpr Tool kTools[] = {{"python3", "python3"},
                           {"cmake", "cmake"},
                           {"ninja", "ninja-build"},
                           {"c++", "g++"},
                           {"cargo", "cargo-web"},
                           {"protoc", "protobuf-compiler"},
                           {"grpc_cpp_plugin", "protobuf-compiler-grpc"}};

bool IsInPath(const std::string& path, const std::string& program) {
  std::istringstream in(path);
  for (std::string folder; std::getline(in, folder, ':');) {
    if (::access(Cat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::string GigaBytes(uint64_t bytes) {
  return Cat(std::round(static_cast<double>(bytes) * 1e-8) / 10, " GB");
}

// Reads the first byte of every tensor's file, so that a missing or forbidden
// one is found now.
Status ReadFirstBytes(const weights::ModelFile& model) {
  std::string last;
  for (const weights::TensorInfo& tensor : model.tensors()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string file, model.FileOf(tensor.name));
    if (file == last) continue;
    last = file;
    SLUICE_RETURN_IF_ERROR(model.ReadStoredPrefix(tensor.name, 1).status());
  }
  return OkStatus();
}

StatusOr<uint64_t> WeightsOfModel(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  SLUICE_RETURN_IF_ERROR(ReadFirstBytes(*model));
  const LayerLoads loads = LoadsOf(config, *model, {});
  return loads.Of({0, loads.num_layers()}).weights;
}

// Returns the inode of the socket that listens on `port`; 0: none is found.
uint64_t ListeningInode(int port) {
  constexpr int kListening = 0x0A;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);  // titles
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retries, user,
          timeout;
      uint64_t inode = 0;
      words >> slot >> local >> remote >> state >> queues >> timer >> retries >>
          user >> timeout >> inode;
      const size_t colon = local.rfind(':');
      if (colon == std::string::npos) continue;
      const bool same =
          std::strtol(local.c_str() + colon + 1, nullptr, 16) == port &&
          std::strtol(state.c_str(), nullptr, 16) == kListening;
      if (same) return inode;
    }
  }
  return 0;
}

// Returns "NAME (pid)" of the process with the socket; empty: not visible.
std::string OwnerOf(uint64_t inode) {
  const std::string wanted = Cat("socket:[", inode, "]");
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    if (std::isdigit(process.path().filename().string()[0]) == 0) continue;
    const fs::path files = process.path() / "fd";
    for (const auto& file : fs::directory_iterator(files, error)) {
      if (fs::read_symlink(file.path(), error).string() != wanted) continue;
      std::ifstream in(process.path() / "comm");
      std::string name;
      std::getline(in, name);
      return Cat(name, " (", process.path().filename().string(), ")");
    }
  }
  return "";
}

}  // namespace

Findings CheckTools(const std::string& path) {
  std::string missing;
  std::string packages;
  for (const Tool& tool : kTools) {
    if (IsInPath(path, tool.program)) continue;
    missing += Cat(missing.empty() ? "" : ", ", tool.program);
    packages += Cat(" ", tool.package);
  }
  if (missing.empty()) return {Fine("tools", "all that deploy/local/up runs")};
  return {Note("tools", Cat("not in PATH: ", missing),
               Cat("to build, not to run: deploy/local/setup, or apt-get "
                   "install",
                   packages))};
}

Findings CheckModel(const std::string& model, uint64_t available_memory) {
  const auto bytes = WeightsOfModel(model);
  if (!bytes.ok()) {
    return {Problem("model", Message(bytes.status()),
                    "name a folder with config.json and safetensors, a .gguf "
                    "or a .m that this user can read")};
  }
  const std::string what =
      Cat(model, ": ", GigaBytes(*bytes), " of weights in memory");
  if (*bytes < available_memory) return {Fine("model", what)};
  return {Problem("model",
                  Cat(what, ", ", GigaBytes(available_memory), " are free"),
                  "more machines, or --weights q4_0: sluice plan tells what is "
                  "enough")};
}

Finding CheckDisk(const std::string& folder) {
  fs::path path = fs::absolute(folder);
  std::error_code error;
  while (!fs::exists(path, error) && path.has_parent_path() &&
         path != path.parent_path()) {
    path = path.parent_path();
  }
  struct statvfs disk = {};
  if (::statvfs(path.c_str(), &disk) != 0) {
    return Problem("disk", Cat(path.string(), ": ", std::strerror(errno)),
                   "packed weights and downloads need a folder");
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string what = Cat(GigaBytes(free), " free in ", path.string());
  if (::access(path.c_str(), W_OK) != 0) {
    return Note("disk", Cat(what, ", not writable"),
                "packed weights are made anew at every start: --packed DIR");
  }
  if (free < kLittleDisk) {
    return Note(
        "disk", what,
        "packed weights take as much as the model: --packed off or DIR");
  }
  return Fine("disk", what);
}

Finding CheckPacked(const std::vector<std::string>& folders) {
  uint64_t bytes = 0;
  uint64_t idle = 0;
  std::string where;
  for (const std::string& folder : folders) {
    const auto files = weights::ListPacked(folder);
    if (files.empty()) continue;
    where += Cat(where.empty() ? "" : ", ", folder);
    for (const weights::KeptFile& file : files) {
      bytes += file.bytes;
      if (!file.in_use) idle += file.bytes;
    }
  }
  if (where.empty()) return Fine("packed weights", "none are kept here");
  const std::string what = Cat(GigaBytes(bytes), ", ", GigaBytes(idle),
                               " of them in no use, in ", where);
  if (idle < kLittleDisk) return Fine("packed weights", what);
  return Note("packed weights", what, "sluice packed --prune drops these");
}

Finding CheckPort(int port) {
  const std::string area = Cat("port ", port);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  if (socket < 0) {
    return Problem(area, Cat("no socket: ", std::strerror(errno)),
                   "ulimit -n is reached, or a sandbox forbids it");
  }
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address),
                            sizeof(address)) == 0;
  const int reason = errno;
  ::close(socket);
  if (bound) return Fine(area, "free");
  if (reason != EADDRINUSE) {
    return Problem(area, std::strerror(reason), "choose one above 1023");
  }
  const uint64_t inode = ListeningInode(port);
  const std::string owner = inode == 0 ? "" : OwnerOf(inode);
  return Note(area, Cat("in use", owner.empty() ? "" : " by ", owner),
              "up --port P takes another one, and 0 any");
}

}  // namespace sluice::doctor
