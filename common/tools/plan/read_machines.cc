#include "common/tools/plan/read_machines.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/byte_size.h"
#include "common/base/text_file.h"

namespace sluice::plan {
namespace {

using placement::Link;
using placement::Machine;
using placement::Machines;
using placement::ParseFigure;

constexpr int64_t kMostMachines = 1024;

// A machine of the file, which may stand for several.
struct Entry {
  Machine machine;
  int64_t count = 1;
};

Status SetRole(const std::string& value, Machine& machine) {
  if (value != "stage" && value != "experts") {
    return InvalidArgument("role must be \"stage\" or \"experts\", got '",
                           value, "'");
  }
  machine.serves_experts = value == "experts";
  return OkStatus();
}

// Sets a number of the machine by its key. NOT_FOUND for another key.
Status SetNumber(const std::string& key, const std::string& value,
                 Machine& machine) {
  const std::pair<const char*, double*> numbers[] = {
      {"read_gb_per_s", &machine.rates.read_gb_per_s},
      {"byte_gop_per_s", &machine.rates.byte_gop_per_s},
      {"f32_gop_per_s", &machine.rates.f32_gop_per_s},
      {"price_per_hour", &machine.price_per_hour}};
  for (const auto& [name, to] : numbers) {
    if (key != name) continue;
    SLUICE_ASSIGN_OR_RETURN(
        *to, ParseFigure(key, value, /*may_be_zero=*/key == "price_per_hour"));
    return OkStatus();
  }
  return InvalidArgument("there is no key '", key, "' of a machine");
}

Status SetRatesFile(const std::string& folder, const std::string& value,
                    Machine& machine) {
  const std::filesystem::path path = value;
  const std::string file =
      path.is_absolute() ? value
                         : (std::filesystem::path(folder) / path).string();
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  auto rates = placement::ParseRates(text);
  if (!rates.ok()) return Annotate(rates.status(), file);
  machine.rates = *std::move(rates);
  return OkStatus();
}

Status SetKey(const std::string& folder, const std::string& key,
              const std::string& value, Entry& entry) {
  Machine& machine = entry.machine;
  if (key == "name") {
    machine.name = value;
  } else if (key == "address") {
    machine.address = value;
  } else if (key == "device") {
    machine.device = value;
  } else if (key == "role") {
    return SetRole(value, machine);
  } else if (key == "rates") {
    return SetRatesFile(folder, value, machine);
  } else if (key == "memory") {
    auto bytes = ParseBytes(value);
    if (!bytes.ok()) return Annotate(bytes.status(), "memory");
    machine.memory = *bytes;
  } else if (key == "count") {
    SLUICE_ASSIGN_OR_RETURN(const double count, ParseFigure(key, value));
    if (count > kMostMachines || count != std::floor(count)) {
      return InvalidArgument("count must be a whole number up to ",
                             kMostMachines, ", got '", value, "'");
    }
    entry.count = static_cast<int64_t>(count);
  } else {
    return SetNumber(key, value, machine);
  }
  return OkStatus();
}

Status SetLink(const std::string& key, const std::string& value, Link& link) {
  SLUICE_ASSIGN_OR_RETURN(const double number,
                          ParseFigure(key, value, key == "latency_ms"));
  if (key == "latency_ms") {
    link.latency_seconds = number * 1e-3;
  } else if (key == "gbit_per_s") {
    link.bytes_per_second = number * 1e9 / 8;
  } else {
    return InvalidArgument("there is no key '", key, "' of the link");
  }
  return OkStatus();
}

// Names, checks and copies the machines of the file's entries.
StatusOr<std::vector<Machine>> Expand(std::vector<Entry> entries) {
  std::vector<Machine> machines;
  for (size_t i = 0; i < entries.size(); ++i) {
    Machine& machine = entries[i].machine;
    if (machine.name.empty()) machine.name = Cat("m", i);
    if (machine.memory == 0) {
      return InvalidArgument("machine ", machine.name, " has no memory");
    }
    if (!(machine.rates.read_gb_per_s > 0)) {
      return InvalidArgument("machine ", machine.name,
                             " has neither read_gb_per_s nor rates");
    }
    placement::FillRates(machine.rates);
    for (int64_t copy = 0; copy < entries[i].count; ++copy) {
      machines.push_back(machine);
      if (entries[i].count > 1) machines.back().name += Cat("-", copy);
    }
  }
  if (machines.empty()) return InvalidArgument("has no [[machine]]");
  if (machines.size() > kMostMachines) {
    return InvalidArgument("has ", machines.size(), " machines, at most ",
                           kMostMachines, " are possible");
  }
  return machines;
}

StatusOr<Machines> FromItems(const std::string& folder,
                             const std::vector<CLI::ConfigItem>& items) {
  Machines all;
  std::vector<Entry> entries;
  for (const CLI::ConfigItem& item : items) {
    const std::string table = item.parents.empty() ? "" : item.parents[0];
    if (item.name == "--") continue;
    if (item.name == "++") {  // a table begins
      if (table == "machine") entries.emplace_back();
      continue;
    }
    const std::string value = CLI::detail::join(item.inputs, ",");
    if (item.parents.size() == 1 && table == "machine") {
      SLUICE_RETURN_IF_ERROR(
          Annotate(SetKey(folder, item.name, value, entries.back()), "machine ",
                   entries.size()));
    } else if (item.parents.size() == 1 && table == "link") {
      SLUICE_RETURN_IF_ERROR(
          Annotate(SetLink(item.name, value, all.link), "link"));
    } else {
      return InvalidArgument("there is no ", item.fullname());
    }
  }
  SLUICE_ASSIGN_OR_RETURN(all.machines, Expand(std::move(entries)));
  return all;
}

}  // namespace

StatusOr<Machines> ReadMachines(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::istringstream in(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(in);
  } catch (const CLI::Error& error) {
    return InvalidArgument(path, ": ", error.what());
  }
  auto machines =
      FromItems(std::filesystem::path(path).parent_path().string(), items);
  if (!machines.ok()) return Annotate(machines.status(), path);
  return machines;
}

}  // namespace sluice::plan
