#include "common/text/output/arguments_writer.h"

#include <string>
#include <utility>

#include "common/text/output/element_value.h"
#include "common/text/utf8.h"

namespace sluice {

void ArgumentsWriter::BeginCall(std::string_view name, EventWriter& out) {
  name_ = name;
  names_.clear();
  out.BeginCall(name);
}

void ArgumentsWriter::BeginValue(std::string_view parameter, EventWriter& out,
                                 ValueForm form) {
  std::string text = names_.empty() ? "{\"" : ", \"";
  std::string name = Utf8Lossy(parameter);  // it may have been cut
  AppendJsonEscaped(name, text);
  text += "\": ";
  drops_ = !names_.insert(std::move(name)).second;
  type_ = &tools_.Of(name_, parameter);
  parameter_ = parameter;
  form_ = form;
  const bool is_string = type_->types == kStringType;
  streams_ =
      form == ValueForm::kText || (form != ValueForm::kPython && is_string);
  if (streams_) text += '"';
  is_json_ = form == ValueForm::kBare && (type_->types & kStringType) == 0;
  scan_ = JsonScan();
  held_.clear();
  if (!drops_) out.Arguments(text);
}

void ArgumentsWriter::BeginDropped() {
  drops_ = true;
  is_json_ = false;
}

void ArgumentsWriter::Value(std::string_view text, EventWriter& out) {
  Scan(text);
  if (drops_) return;
  if (streams_) {
    std::string escaped;
    AppendJsonEscaped(text, escaped);
    out.Arguments(escaped);
    return;
  }
  held_ += text;
  if (held_.size() <= kMaxHeldBytes) return;
  streams_ = true;
  std::string begun = "\"";
  AppendJsonEscaped(held_, begun);
  out.Arguments(begun);
  held_.clear();
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
  if (!drops_) {
    out.Arguments(streams_ ? std::string("\"") : HeldAsJson());
  }
  held_.clear();
}

std::string ArgumentsWriter::HeldAsJson() const {
  if (form_ == ValueForm::kElements) {
    return ElementsAsJson(held_, tools_.PlaceOf(name_, parameter_));
  }
  return ValueAsJson(held_, *type_, form_ == ValueForm::kPython);
}

void ArgumentsWriter::EndCall(EventWriter& out) {
  out.Arguments(names_.empty() ? "{}" : "}");
  out.EndCall();
}

}  // namespace sluice
