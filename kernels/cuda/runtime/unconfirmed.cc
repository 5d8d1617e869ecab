#include "kernels/cuda/runtime/unconfirmed.h"

#include <algorithm>
#include <cstdlib>

namespace sluice::kernels::cuda {
namespace {

constexpr const char* kUnconfirmedVariable = "SLUICE_UNCONFIRMED";

std::string AllNames() {
  std::string names = "all";
  for (const UnconfirmedRow& row : kUnconfirmed) {
    names += std::string(", ") + row.name;
  }
  return names;
}

}  // namespace

std::string AddUnconfirmed(std::string_view names, UnconfirmedSet* set) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    const auto* const row =
        std::find_if(std::begin(kUnconfirmed), std::end(kUnconfirmed),
                     [&](const auto& one) { return name == one.name; });
    if (name == "all") {
      *set = UnconfirmedSet::All();
    } else if (row != std::end(kUnconfirmed)) {
      set->Add(row->what);
    } else {
      return std::string(kUnconfirmedVariable) + " has the name \"" +
             std::string(name) + "\", which is not one of " + AllNames();
    }
  }
  return "";
}

UnconfirmedSet AskedUnconfirmed(std::string* error) {
  UnconfirmedSet asked;
  for (const UnconfirmedRow& row : kUnconfirmed) {
    const char* const value =
        row.variable == nullptr ? nullptr : std::getenv(row.variable);
    if (value != nullptr && std::string_view(value) == "1") asked.Add(row.what);
  }
  const char* const names = std::getenv(kUnconfirmedVariable);
  const std::string wrong =
      names == nullptr ? "" : AddUnconfirmed(names, &asked);
  if (error != nullptr) *error = wrong;
  return asked;
}

}  // namespace sluice::kernels::cuda
