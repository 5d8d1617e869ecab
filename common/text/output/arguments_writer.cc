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
  held_.clear();
  out.Arguments(text);
}

void ArgumentsWriter::Value(std::string_view text, EventWriter& out) {
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

void ArgumentsWriter::EndValue(EventWriter& out) {
  out.Arguments(streams_ ? std::string("\"") : ValueAsJson(held_, types_));
  held_.clear();
}

void ArgumentsWriter::EndCall(EventWriter& out) {
  out.Arguments(first_ ? "{}" : "}");
  out.EndCall();
}

}  // namespace sluice
