#include "services/cli/bench/workload.h"

#include <charconv>
#include <utility>

namespace sluice::cli {
namespace {

int64_t Draw(const LengthRange& range, SeededRandom& random) {
  return range.low + static_cast<int64_t>(random.Below(
                         static_cast<uint64_t>(range.high - range.low + 1)));
}

}  // namespace

StatusOr<LengthRange> LengthRange::Parse(std::string_view text) {
  const auto number = [](std::string_view digits) -> int64_t {
    int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && stop == end ? value : 0;
  };
  const size_t colon = text.find(':');
  LengthRange range;
  range.low = number(text.substr(0, colon));
  range.high = colon == std::string_view::npos ? range.low
                                               : number(text.substr(colon + 1));
  if (range.low < 1 || range.high < range.low || range.high > 10'000'000) {
    return InvalidArgument("'", text,
                           "' is neither N nor LOW:HIGH with 1 <= LOW <= HIGH "
                           "<= 10000000");
  }
  return range;
}

StatusOr<Workload> Workload::Prepare(const WorkloadOptions& options,
                                     const BaseUrl& base) {
  Workload made;
  made.options_ = options;
  made.fields_ = {{"model", options.model},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}}},
                  {"temperature", options.temperature}};
  if (options.extensions) {
    made.fields_["ignore_eos"] = true;
    made.fields_["return_token_ids"] = true;
  }
  if (!options.extra.empty()) {
    const StatusOr<Json> extra = ParseJson(options.extra);
    if (!extra.ok()) return Annotate(extra.status(), "--extra");
    if (!extra->is_object()) return InvalidArgument("--extra: no JSON object");
    made.fields_.update(*extra);
  }
  SLUICE_ASSIGN_OR_RETURN(
      made.maker_, PromptMaker::Learn(base, options.model, options.chat));
  return made;
}

LoadRequest Workload::Request(int64_t index) const {
  SeededRandom random(options_.seed * 0x9e3779b97f4a7c15ULL +
                      static_cast<uint64_t>(index));
  const int64_t prompt_tokens = Draw(options_.prompt_tokens, random);
  const int64_t output_tokens = Draw(options_.output_tokens, random);
  Json body = fields_;
  body["max_tokens"] = output_tokens;
  if (options_.chat) {
    body["messages"] = Json::array(
        {{{"role", "user"}, {"content", maker_.Text(prompt_tokens, random)}}});
  } else if (maker_.makes_ids()) {
    body["prompt"] = maker_.Ids(prompt_tokens, random);
  } else {
    body["prompt"] = maker_.Text(prompt_tokens, random);
  }
  return {DumpJson(body), prompt_tokens, output_tokens};
}

}  // namespace sluice::cli
