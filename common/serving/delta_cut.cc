#include "common/serving/delta_cut.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "common/serving/text_offsets.h"

namespace sluice::serving {
namespace {

// Takes up to `left` bytes off the front of `text`. INVALID_ARGUMENT if that
// would cut a character in two.
Status CutText(uint64_t& left, std::string& text) {
  const auto cut = static_cast<size_t>(std::min<uint64_t>(left, text.size()));
  if (cut < text.size() && cut > 0 && ContinuesCharacter(text[cut])) {
    return EventIdError("names a place within a character of the answer");
  }
  text.erase(0, cut);
  left -= cut;
  return OkStatus();
}

template <typename T>
void EraseFront(size_t count, std::vector<T>& list) {
  list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(
                                              std::min(count, list.size())));
}

// Takes the first `count` entries off the prompt's. Other choices share the
// parts: one that is cut within is copied.
void CutPrompt(size_t count, Delta& delta) {
  delta.prompt_ends.clear();
  std::vector<PromptResults> kept;
  for (PromptResults& part : std::exchange(delta.prompt, {})) {
    const size_t cut = std::min(count, part->size());
    count -= cut;
    if (cut == part->size()) continue;
    if (cut > 0) {
      part = std::make_shared<const std::vector<TokenResult>>(
          part->begin() + static_cast<std::ptrdiff_t>(cut), part->end());
    }
    kept.push_back(std::move(part));
  }
  delta.AddPrompt(kept);
}

}  // namespace

Status DeltaCut::Apply(Delta& delta) {
  if (left_.ended) {
    delta = Delta();
    return OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(CutText(left_.content, delta.text));
  SLUICE_RETURN_IF_ERROR(CutText(left_.reasoning, delta.reasoning));
  SLUICE_RETURN_IF_ERROR(CutCalls(delta));
  CutEntries(delta);
  if (delta.num_shown() > 0) delta.cut_tokens = std::exchange(cut_tokens_, {});
  return delta.finish ? CheckEnd() : OkStatus();
}

void DeltaCut::CutEntries(Delta& delta) {
  auto cut = static_cast<size_t>(
      std::min<uint64_t>(left_.entries, delta.num_entries()));
  if (cut == 0) return;
  left_.entries -= cut;
  const size_t shown = std::min(cut, delta.num_shown());
  for (size_t i = 0; i < shown; ++i) {
    cut_tokens_.push_back(delta.shown(i).token);
  }
  if (delta.echo_begin) {
    delta.echo_begin.reset();
    --cut;
  }
  if (delta.echoes_prompt && cut > 0) {
    const size_t of_prompt = std::min(cut, delta.num_prompt());
    CutPrompt(of_prompt, delta);
    cut -= of_prompt;
  }
  EraseFront(cut, delta.token_ids);
  EraseFront(cut, delta.logprobs);
}

Status DeltaCut::CutCalls(Delta& delta) {
  if (left_.calls == 0) return OkStatus();
  const uint64_t last = left_.calls - 1;
  std::vector<CallDelta> kept;
  for (CallDelta& call : std::exchange(delta.calls, {})) {
    const auto index = static_cast<uint64_t>(call.index);
    calls_seen_ = std::max(calls_seen_, index + 1);
    if (index < last) continue;
    if (index == last) {
      call.id.clear();
      call.name.clear();
      SLUICE_RETURN_IF_ERROR(CutText(left_.arguments, call.arguments));
      if (call.arguments.empty()) continue;
    }
    kept.push_back(std::move(call));
  }
  delta.calls = std::move(kept);
  return OkStatus();
}

Status DeltaCut::CheckEnd() const {
  if (left_.content == 0 && left_.reasoning == 0 && left_.arguments == 0 &&
      left_.entries == 0 && calls_seen_ >= left_.calls) {
    return OkStatus();
  }
  return EventIdError("names a place beyond the end of the answer");
}

}  // namespace sluice::serving
