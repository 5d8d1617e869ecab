#include "common/text/output/json_arguments.h"

#include "common/base/json.h"

namespace sluice {

std::string JsonArguments::AsObject(std::string_view text) {
  const auto value = ParseJson(text);
  if (!value.ok()) return std::string(text);
  if (value->is_null()) return "{}";
  if (value->is_string()) {
    const auto& inner = value->get_ref<const std::string&>();
    const auto parsed = ParseJson(inner);
    if (parsed.ok() && parsed->is_object()) return inner;
  }
  return std::string(text);
}

void JsonArguments::Begin(const PendingText& input) {
  held_.clear();
  scan_ = JsonScan();
  passes_on_ = input.text().front() == '{';
}

bool JsonArguments::Read(PendingText& input, EventWriter& out) {
  const std::string_view text = input.text();
  std::string piece;
  auto step = JsonScan::Step::kWithin;
  size_t at = 0;
  while (at < text.size() && step == JsonScan::Step::kWithin) {
    const bool in_string = scan_.in_string();
    step = scan_.Next(text[at]);
    if (step == JsonScan::Step::kBehind) break;
    if (in_string && static_cast<unsigned char>(text[at]) < 0x20) {
      AppendJsonEscaped(text.substr(at, 1), piece);
    } else {
      piece += text[at];
    }
    ++at;
  }
  input.Consume(at);
  const bool over = step != JsonScan::Step::kWithin;
  const bool closes = !over && input.stopped();
  Write(piece, over || closes, out);
  if (closes) out.Arguments(scan_.Closers());
  if (over || closes) out.EndCall();
  return over;
}

// `whole`: the piece is the last. A value that is no object is held back until
// then.
void JsonArguments::Write(std::string_view piece, bool whole,
                          EventWriter& out) {
  if (passes_on_) {
    out.Arguments(piece);
    return;
  }
  held_ += piece;
  if (held_.size() > kMaxHeldBytes) {
    out.Arguments(held_);
    passes_on_ = true;
  } else if (whole) {
    out.Arguments(AsObject(held_));
  }
}

}  // namespace sluice
