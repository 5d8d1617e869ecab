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
  bool is_done = names.empty();
  while (!is_done) {
    const size_t end = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, end);
    is_done = end == names.size();
    if (!is_done) names.remove_prefix(end + 1);
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

UnconfirmedAsked ReadUnconfirmed() {
  UnconfirmedAsked asked;
  for (const UnconfirmedRow& row : kUnconfirmed) {
    const char* const value =
        row.variable == nullptr ? nullptr : std::getenv(row.variable);
    if (value != nullptr && std::string_view(value) == "1")
      asked.set.Add(row.what);
  }
  const char* const names = std::getenv(kUnconfirmedVariable);
  if (names != nullptr) asked.error = AddUnconfirmed(names, &asked.set);
  return asked;
}

const UnconfirmedAsked& AskedUnconfirmed() {
  static const UnconfirmedAsked asked = ReadUnconfirmed();
  return asked;
}

}  // namespace sluice::kernels::cuda
