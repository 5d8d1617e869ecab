#include "common/serving/best_choices.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace sluice::serving {
namespace {

double MeanLogprob(const Delta& choice) {
  double sum = 0;
  size_t count = 0;
  for (const TokenResult& token : choice.logprobs) {
    if (!token.logprob) continue;
    sum += double{token.logprob->logprob};
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count)
                   : -std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<Delta> BestChoices(std::vector<Delta> choices,
                               const BestOf& best_of) {
  const auto made = static_cast<size_t>(best_of.made);
  const auto shown = static_cast<size_t>(best_of.shown);
  SLUICE_CHECK(choices.size() % made == 0 && shown <= made);
  std::vector<Delta> best;
  for (size_t first = 0; first < choices.size(); first += made) {
    std::vector<double> means;
    for (size_t i = 0; i < made; ++i) {
      means.push_back(MeanLogprob(choices[first + i]));
    }
    std::vector<size_t> order(made);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(
        order, [&means](size_t a, size_t b) { return means[a] > means[b]; });
    for (size_t i = 0; i < shown; ++i) {
      best.push_back(std::move(choices[first + order[i]]));
      if (!best_of.shows_logprobs) best.back().logprobs.clear();
    }
  }
  return best;
}

}  // namespace sluice::serving
