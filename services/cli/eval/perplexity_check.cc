#include <algorithm>
#include <cmath>
#include <utility>

#include "services/cli/eval/checks.h"

namespace sluice::cli {
namespace {

constexpr int64_t kLargestWindow = 2048;

struct Windowing {
  size_t window = 0, stride = 0;
};

StatusOr<Windowing> ChooseWindow(const EvalApi& api,
                                 const PerplexityOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t context, api.MaxContext());
  int64_t window = options.window;
  if (window == 0) {
    window = context > 0 ? std::min(context, kLargestWindow) : kLargestWindow;
  }
  const int64_t stride =
      options.stride > 0 ? options.stride : std::max<int64_t>(window / 2, 1);
  if (window < 2 || stride >= window) {
    return InvalidArgument("--window ", window, " and --stride ", stride,
                           ": a window of 2 tokens or more and a shorter "
                           "stride are needed");
  }
  return Windowing{static_cast<size_t>(window), static_cast<size_t>(stride)};
}

// What the windows of a text have cost.
struct Losses {
  double sum = 0;  // negative log likelihood of the counted tokens
  size_t counted = 0;
  double perplexity() const {
    return std::exp(sum / static_cast<double>(counted));
  }
};

// Negative log likelihood of the tokens that a window counts.
StatusOr<double> WindowLoss(const EvalApi& api, const std::vector<int64_t>& ids,
                            const PerplexityWindow& window) {
  Probe probe;
  probe.name = Cat("tokens ", window.begin, " to ", window.end);
  const std::vector<int64_t> sent(ids.begin() + std::ptrdiff_t(window.begin),
                                  ids.begin() + std::ptrdiff_t(window.end));
  probe.prompt_json = PromptJson(sent);
  probe.max_tokens = 0;
  SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer, api.Ask(probe));
  if (answer.logprobs.size() != window.end - window.begin) {
    return FailedPrecondition(probe.name, ": ", answer.logprobs.size(),
                              " log probabilities");
  }
  SLUICE_RETURN_IF_ERROR(RequireEcho(probe.name, sent, answer));
  double loss = 0;
  for (size_t i = window.score_begin; i < window.end; ++i) {
    loss -= answer.logprobs[i - window.begin];
  }
  return loss;
}

StatusOr<Losses> MeasureLosses(const EvalApi& api,
                               const std::vector<int64_t>& ids,
                               const Windowing& size) {
  Losses losses;
  for (const PerplexityWindow& window :
       PerplexityWindows(ids.size(), size.window, size.stride)) {
    SLUICE_ASSIGN_OR_RETURN(const double loss, WindowLoss(api, ids, window));
    losses.sum += loss;
    losses.counted += window.end - window.score_begin;
  }
  return losses;
}

}  // namespace

std::vector<PerplexityWindow> PerplexityWindows(size_t tokens, size_t window,
                                                size_t stride) {
  std::vector<PerplexityWindow> windows;
  size_t scored = 1;  // the first token has nothing before it
  for (size_t begin = 0; scored < tokens; begin += stride) {
    const size_t end = std::min(begin + window, tokens);
    windows.push_back({begin, end, scored});
    scored = end;
  }
  return windows;
}

StatusOr<CheckResult> CheckPerplexity(const EvalApi& api,
                                      const PerplexityOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const Windowing size, ChooseWindow(api, options));
  SLUICE_ASSIGN_OR_RETURN(const auto ids, api.Tokenize(options.text));
  if (ids.size() < 2) {
    return InvalidArgument(options.name,
                           ": a text of 2 tokens or more is "
                           "needed, it has ",
                           ids.size());
  }
  SLUICE_ASSIGN_OR_RETURN(const Losses losses, MeasureLosses(api, ids, size));
  const double token = losses.perplexity();
  CheckResult result;
  result.title = "Perplexity";
  result.passed =
      std::isfinite(token) && !(options.max_token_perplexity > 0 &&
                                token > options.max_token_perplexity);
  result.summary = Cat("token perplexity ", Fixed(token, 4), " over ",
                       losses.counted, " tokens");
  result.body =
      Cat(options.name, ": ", options.text.size(), " bytes, ", ids.size(),
          " tokens; windows of ", size.window, " tokens, stride ", size.stride,
          ". Every token but the first is counted once.\n\n",
          MarkdownTable({{"figure", "value"},
                         {"negative log likelihood", Fixed(losses.sum, 4)},
                         {"token perplexity", Fixed(token, 5)}}));
  return result;
}

}  // namespace sluice::cli
