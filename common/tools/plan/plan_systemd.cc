// A script that writes and starts the units of each machine.
#include <algorithm>
#include <cctype>
#include <string>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

constexpr int kFirstStagePort = 7001;
constexpr int kFirstHostPort = 7101;
// Where a hub's models come to.
constexpr char kHubFolder[] = "/srv/sluice";
// Folders that the units' sandbox hides.
constexpr const char* kHidden[] = {"/home/", "/root/", "/tmp/", "/var/tmp/"};

std::string Address(const PlannedProcess& process, int first_port) {
  const bool six = process.place.find(':') != std::string::npos;
  return Cat(six ? "[" : "", process.place, six ? "]" : "", ":",
             first_port + process.at);
}

// Returns a value of TOML: a number as it is.
std::string Value(const std::string& text) {
  const bool number =
      !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
        return std::isdigit(c) != 0;
      });
  return number ? text : Quoted(text);
}

std::string Lines(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options) {
    text += Cat(name, " = ", Value(value), "\n");
  }
  return text;
}

std::string Put(const std::string& path, const std::string& text) {
  return Cat("  put ", path, " <<'END'\n", text, "END\n");
}

std::string UnitModelPath(const FilesRequest& files) {
  if (!files.of_hub) return files.model;
  return Cat(kHubFolder, "/", LinkName(files.model));
}

std::string PullLine(const FilesRequest& files, const std::string& layers) {
  if (!files.of_hub) return "";
  return Cat("  pull ", Word(files.model), " --layers ", layers, " --link ",
             Word(UnitModelPath(files)), "\n");
}

// Makes the files of one unit.
class Unit {
 public:
  Unit(const FilesRequest& files, const PlannedParts& parts, std::string role,
       const std::string& instance)
      : files_(files),
        parts_(parts),
        role_(std::move(role)),
        name_(Cat("sluice-", role_, instance.empty() ? "" : "@", instance)),
        config_(Cat("/etc/sluice/", role_, instance.empty() ? "" : "-",
                    instance, ".toml")) {}

  const std::string& name() const { return name_; }

  // Returns the lines that write its configuration and drop-in.
  std::string Write(const PlannedBox& box, const std::string& options,
                    uint64_t mebibytes) const {
    std::string config =
        Cat("model = ", Quoted(UnitModelPath(files_)), "\n", options);
    std::string drop_in = "[Service]\n";
    if (mebibytes > 0) drop_in += Cat("MemoryMax=", mebibytes, "M\n");
    if (parts_.boxes.size() > 1) {
      const std::string credentials =
          Cat("/run/credentials/", name_, ".service/");
      config += Lines({{"tls-cert", credentials + "cert"},
                       {"tls-key", credentials + "key"},
                       {"tls-ca", "/etc/sluice/tls/ca.pem"}});
      const std::string of = Cat("/etc/sluice/tls/", box.name(), "-", role_);
      drop_in += Cat("LoadCredential=cert:", of,
                     ".pem\nLoadCredential=key:", of, ".key\n");
    }
    return Put(config_, config) +
           Put(Cat("/etc/systemd/system/", name_, ".service.d/60-plan.conf"),
               drop_in);
  }

 private:
  const FilesRequest& files_;
  const PlannedParts& parts_;
  const std::string role_;
  const std::string name_;
  const std::string config_;
};

std::string Listen(const PlannedParts& parts, int port) {
  return Cat(parts.boxes.size() > 1 ? "0.0.0.0:" : "127.0.0.1:", port);
}

uint64_t LimitOf(const PlannedProcess& process, const PlannedBox& box) {
  return process.gpus > 0 ? 0 : Mebibytes(process.bytes, box.given);
}

std::string PlacementUnit(const FilesRequest& files,
                          const PlannedParts& parts) {
  ExpertPlacement named = files.plan->placement;
  for (size_t i = 0; i < named.hosts.size(); ++i) {
    named.hosts[i] = {Cat("expert-", i),
                      Address(parts.hosts[i], kFirstHostPort)};
  }
  return Put("/etc/sluice/placement.json", ToText(named));
}

std::string StageUnit(const FilesRequest& files, const PlannedParts& parts,
                      const PlannedBox& box, size_t index, std::string& units) {
  const PlannedProcess& stage = parts.stages[index];
  Options options = {{"listen", Listen(parts, kFirstStagePort + stage.at)},
                     {"layers", stage.layers},
                     {"device", stage.device}};
  if (!parts.hosts.empty()) {
    options.emplace_back("placement", "/etc/sluice/placement.json");
  }
  for (auto& option : StageOptions(files, parts)) {
    options.push_back(std::move(option));
  }
  const Unit unit(files, parts, "stage", Cat(index));
  units += Cat(" ", unit.name());
  return PullLine(files, stage.layers) +
         unit.Write(box, Lines(options), LimitOf(stage, box));
}

std::string HostUnit(const FilesRequest& files, const PlannedParts& parts,
                     const PlannedBox& box, size_t index, std::string& units) {
  const PlannedProcess& host = parts.hosts[index];
  Options options = {{"listen", Listen(parts, kFirstHostPort + host.at)},
                     {"placement", "/etc/sluice/placement.json"},
                     {"host", Cat("expert-", index)},
                     {"device", host.device}};
  for (auto& option : HostOptions(files, parts)) {
    options.push_back(std::move(option));
  }
  const Unit unit(files, parts, "expert", Cat(index));
  units += Cat(" ", unit.name());
  std::string text = files.of_hub
                         ? Cat("  pull ", Word(files.model), " --link ",
                               Word(UnitModelPath(files)), "\n")
                         : "";
  return text + unit.Write(box, Lines(options), LimitOf(host, box));
}

std::string GatewayUnit(const FilesRequest& files, const PlannedParts& parts,
                        const PlannedBox& box, std::string& units) {
  std::string stages;
  for (const PlannedProcess& stage : parts.stages) {
    const std::string address =
        parts.boxes.size() > 1 ? Address(stage, kFirstStagePort)
                               : Cat("127.0.0.1:", kFirstStagePort + stage.at);
    stages += Cat(stages.empty() ? "" : ", ", Quoted(address));
  }
  std::string options =
      Cat("listen = \"127.0.0.1:8000\"\nstages = [", stages, "]\n");
  if (TakeTurns(parts)) options += "max-plans-in-flight = 1\n";
  const Unit unit(files, parts, "gateway", "");
  units += Cat(" ", unit.name());
  return PullLine(files, "none") + unit.Write(box, options, 0);
}

std::string MachineUnits(const FilesRequest& files, const PlannedParts& parts,
                         const PlannedBox& box) {
  std::string units;
  std::string text;
  if (!parts.hosts.empty()) text += PlacementUnit(files, parts);
  for (const size_t i : box.hosts)
    text += HostUnit(files, parts, box, i, units);
  for (const size_t i : box.stages)
    text += StageUnit(files, parts, box, i, units);
  if (&box == &parts.boxes[0]) text += GatewayUnit(files, parts, box, units);
  return Cat(Word(box.name()), ")\n", text, "  units='", units.substr(1),
             "'\n  ;;\n");
}

std::string Certificates(const PlannedParts& parts) {
  if (parts.boxes.size() == 1) return "";
  std::string hosts;
  for (const PlannedBox& box : parts.boxes) {
    hosts += Cat(" --host ", box.name(), "=", box.place);
  }
  return Cat("# Certificates, once, to be copied to /etc/sluice/tls of each ",
             "machine (ca.pem and\n# MACHINE-*; never ca.key):\n",
             "#   deploy/local/certificates tls", hosts, "\n");
}

Status CheckPath(const FilesRequest& files) {
  if (files.of_hub) return OkStatus();
  if (!files.model.starts_with("/")) {
    return InvalidArgument("the model must be a hub's ORG/NAME or an absolute ",
                           "path on each machine, got ", files.model);
  }
  for (const char* hidden : kHidden) {
    if (!files.model.starts_with(hidden)) continue;
    return InvalidArgument("the units' sandbox hides ", hidden, ", where ",
                           files.model, " is: --source names another path");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> SystemdFile(const FilesRequest& files,
                                  const PlannedParts& parts) {
  SLUICE_RETURN_IF_ERROR(CheckPath(files));
  std::string names;
  std::string machines;
  for (const PlannedBox& box : parts.boxes) {
    names += Cat(names.empty() ? "" : ", ", box.name());
    machines += MachineUnits(files, parts, box);
  }
  return Cat(
      "#!/bin/sh\n# The planned cluster by the packages' units. On each of its "
      "machines (",
      names, "), as root:\n#   sh plan.sh MACHINE\n",
      "# With a FOLDER behind, files are written below it, and nothing is "
      "started.\n",
      Certificates(parts),
      "set -eu\nroot=${2:-}\n"
      "put() { mkdir -p \"$(dirname \"$root$1\")\" && cat >\"$root$1\"; }\n"
      "pull() { [ -n \"$root\" ] || HF_HOME=",
      kHubFolder, "/hub sluice pull \"$@\"; }\ncase ${1:-} in\n", machines,
      "*)\n  echo \"the machine must be one of ", names,
      "\" >&2\n  exit 2\n  ;;\nesac\n", "[ -z \"$root\" ] || exit 0\n",
      // Units of a plan before, which would hold ports and memory.
      "for file in /etc/systemd/system/sluice-*.service.d/60-plan.conf; do\n"
      "  unit=$(basename \"${file%/60-plan.conf}\" .d)\n"
      "  case \" $units \" in\n  *\" ${unit%.service} \"*) ;;\n"
      "  *)\n    [ -e \"$file\" ] || continue\n"
      "    systemctl disable --now \"$unit\"\n    rm \"$file\"\n    ;;\n"
      "  esac\ndone\nsystemctl daemon-reload\n",
      "systemctl enable $units\nsystemctl restart $units\n");
}

}  // namespace sluice::plan
