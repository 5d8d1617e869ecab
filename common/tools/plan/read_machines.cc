#include "common/tools/plan/read_machines.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/byte_size.h"
#include "common/base/text_file.h"
#include "common/placement/known_machines.h"

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
  if (value != "stage" && value != "experts" && value != "any") {
    return InvalidArgument(
        "role must be \"stage\", \"experts\" or \"any\", got '", value, "'");
  }
  machine.serves_experts = value == "experts";
  machine.serves_any = value == "any";
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
  machine.is_measured = true;
  return OkStatus();
}

// Sets memory and rates of the table; keys behind it change them.
Status SetKnown(const std::string& value, Machine& machine) {
  SLUICE_ASSIGN_OR_RETURN(const Machine known,
                          placement::FindKnownMachine(value));
  machine.memory = known.memory;
  machine.rates = known.rates;
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
  } else if (key == "known") {
    return SetKnown(value, machine);
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

// A link of the file, between machines by their names.
struct NamedLink {
  std::vector<std::string> between;
  Link link;
};

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

Status SetNamedLink(const CLI::ConfigItem& item, NamedLink& link) {
  if (item.name == "between") {
    link.between = item.inputs;
    return OkStatus();
  }
  return SetLink(item.name, CLI::detail::join(item.inputs, ","), link.link);
}

// Returns the machines that a name of an entry stands for, or one of its
// copies.
std::vector<int32_t> MachinesNamed(const std::vector<Entry>& entries,
                                   const std::vector<Machine>& machines,
                                   const std::string& name) {
  std::vector<int32_t> found;
  int32_t next = 0;
  for (const Entry& entry : entries) {
    for (int64_t copy = 0; copy < entry.count; ++copy, ++next) {
      if (entry.machine.name == name ||
          machines[static_cast<size_t>(next)].name == name) {
        found.push_back(next);
      }
    }
  }
  return found;
}

// Adds a link between all machines of its two names.
Status AddLink(const std::vector<Entry>& entries, const NamedLink& named,
               Machines& all) {
  if (named.between.size() != 2) {
    return InvalidArgument("between must be the names of two machines, got ",
                           named.between.size());
  }
  std::vector<int32_t> ends[2];
  for (size_t i = 0; i < 2; ++i) {
    ends[i] = MachinesNamed(entries, all.machines, named.between[i]);
    if (ends[i].empty()) {
      return InvalidArgument("between: there is no machine '", named.between[i],
                             "'");
    }
  }
  if (ends[0] == ends[1] && ends[0].size() == 1) {
    return InvalidArgument("between: a machine has no link to itself, got '",
                           named.between[0], "' twice");
  }
  for (const int32_t a : ends[0]) {
    for (const int32_t b : ends[1]) {
      if (a != b) all.links.push_back({a, b, named.link});
    }
  }
  return OkStatus();
}

// Names, checks and copies the machines of the file's entries.
// Names and addresses become words of scripts and names of objects.
Status CheckText(std::string_view key, const std::string& text,
                 std::string_view others) {
  const bool fits = std::isalnum(static_cast<unsigned char>(text[0])) != 0 ||
                    (key == "address" && text[0] == '[');
  if (fits && std::ranges::all_of(text, [&](unsigned char c) {
        return std::isalnum(c) != 0 || others.find(c) != others.npos;
      })) {
    return OkStatus();
  }
  return InvalidArgument(key, " must have letters, digits and ", others,
                         " alone, a letter or digit first, got '", text, "'");
}

Status CheckNames(const std::vector<Machine>& machines) {
  std::set<std::string_view> names;
  for (const Machine& machine : machines) {
    SLUICE_RETURN_IF_ERROR(CheckText("name", machine.name, "_.-"));
    if (!machine.address.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckText("address", machine.address, "_.:-[]"));
    }
    if (!names.insert(machine.name).second) {
      return InvalidArgument("two machines have the name ", machine.name);
    }
  }
  return OkStatus();
}

StatusOr<std::vector<Machine>> Expand(std::vector<Entry>& entries) {
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
  SLUICE_RETURN_IF_ERROR(CheckNames(machines));
  return machines;
}

StatusOr<Machines> FromItems(const std::string& folder,
                             const std::vector<CLI::ConfigItem>& items) {
  Machines all;
  std::vector<Entry> entries;
  std::vector<NamedLink> links;
  for (const CLI::ConfigItem& item : items) {
    const std::string table = item.parents.empty() ? "" : item.parents[0];
    if (item.name == "--") continue;
    if (item.name == "++") {  // a table begins
      if (table == "machine") entries.emplace_back();
      if (table == "links") links.emplace_back();
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
      all.is_link_named = true;
    } else if (item.parents.size() == 1 && table == "links") {
      SLUICE_RETURN_IF_ERROR(
          Annotate(SetNamedLink(item, links.back()), "links ", links.size()));
    } else {
      return InvalidArgument("there is no ", item.fullname());
    }
  }
  SLUICE_ASSIGN_OR_RETURN(all.machines, Expand(entries));
  for (size_t i = 0; i < links.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        Annotate(AddLink(entries, links[i], all), "links ", i + 1));
  }
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
