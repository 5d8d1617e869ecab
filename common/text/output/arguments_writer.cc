#include "common/text/output/arguments_writer.h"

#include "common/text/utf8.h"

namespace sluice {

void ArgumentsWriter::BeginCall(std::string_view name, EventWriter& out) {
  name_ = name;
  first_ = true;
  out.BeginCall(name);
}

void ArgumentsWriter::BeginValue(std::string_view parameter, EventWriter& out) {
  std::string text = first_ ? "{\"" : ", \"";
  first_ = false;
  AppendJsonEscaped(Utf8Lossy(parameter), text);  // it may have been cut
  text += "\": ";
  types_ = tools_.Of(name_, parameter);
  streams_ = types_ == kStringType;
  if (streams_) text += '"';
  is_json_ = (types_ & kStringType) == 0;
  scan_ = JsonScan();
  held_.clear();
  out.Arguments(text);
}

void ArgumentsWriter::Value(std::string_view text, EventWriter& out) {
  Scan(text);
  if (!streams_) {
    held_ += text;
    if (held_.size() <= kMaxHeldBytes) return;
    streams_ = true;
    std::string begun = "\"";
    AppendJsonEscaped(held_, begun);
    out.Arguments(begun);
    held_.clear();
    return;
  }
  std::string escaped;
  AppendJsonEscaped(text, escaped);
  out.Arguments(escaped);
}

void ArgumentsWriter::Scan(std::string_view text) {
  for (const char c : text) {
    if (!is_json_) return;
    if (!scan_.began() && IsBlank(c)) continue;
    // A string of JSON has no raw control character: a model broke it off.
    const bool broken =
        scan_.in_string() && static_cast<unsigned char>(c) < 0x20;
    is_json_ = !broken && scan_.Next(c) == JsonScan::Step::kWithin;
  }
}

void ArgumentsWriter::EndValue(EventWriter& out) {
  out.Arguments(streams_ ? std::string("\"") : ValueAsJson(held_, types_));
  held_.clear();
}

void ArgumentsWriter::EndCall(EventWriter& out) {
  out.Arguments(first_ ? "{}" : "}");
  out.EndCall();
}

}  // namespace sluice
