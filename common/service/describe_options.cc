#include "common/service/describe_options.h"

#include <algorithm>
#include <utility>

#include "common/base/build_info.h"
#include "common/manual/completion_script.h"
#include "common/manual/manual_page.h"
#include "common/service/options_file.h"

namespace sluice {
namespace {

using Kind = OptionValue::Kind;

// Returns "0.1 to 3600"; empty for an option that takes any value.
std::string RangeText(const OptionRow& row) {
  const Range& range = row.value.range;
  if (range.low == Range().low && range.high == Range().high) return "";
  const std::string low = option::Write(range.low);
  if (range.high == option::kNoLimit) return "at least " + low;
  return Cat(low, " to ", option::Write(range.high));
}

// Returns "meaning (0.1 to 3600; default: 10)".
std::string AboutText(const OptionRow& row) {
  if (row.value.kind == Kind::kSwitch && row.usual == "false") return row.about;
  std::string facts = RangeText(row);
  if (!row.usual.empty()) {
    facts += Cat(facts.empty() ? "" : "; ", "default: ", row.usual);
  }
  return facts.empty() ? row.about : Cat(row.about, " (", facts, ")");
}

// Appends the words of `text` in lines of at most 80 columns, behind `indent`
// spaces. The text begins a line.
void AppendWrapped(const std::string& text, size_t indent, std::string& out) {
  size_t column = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (column != 0 && column + 1 + end - begin > 80) {
      out += '\n';
      column = 0;
    }
    const size_t gap = column == 0 ? indent : 1;
    out.append(gap, ' ').append(text, begin, end - begin);
    column += gap + end - begin;
    begin = end + 1;
  }
  out += '\n';
}

std::string MarkdownTable(const ServiceProgram& program) {
  std::string out =
      "| option | default | range | meaning |\n"
      "| --- | --- | --- | --- |\n";
  for (const OptionRow& row : SortedByName(program.options)) {
    std::string about = row.about;
    for (size_t bar = about.find('|'); bar != std::string::npos;
         bar = about.find('|', bar + 2)) {
      about.insert(bar, "\\");
    }
    const std::string& unit = row.value.unit;
    out += Cat("| `--", row.name, "`", unit.empty() ? "" : " ", unit, " | ",
               row.usual.empty() ? "" : Cat("`", row.usual, "`"), " | ",
               RangeText(row), " | ", about, " |\n");
  }
  return out;
}

Program DescribeService(const ServiceProgram& service) {
  Program program;
  program.name = "sluice-" + service.name;
  program.version = std::string(BuildVersion());
  program.section = 8;
  program.about = service.about;
  program.sections = {
      {"example", {service.example}},
      {"environment",
       {"An option that the command line leaves out is taken from the "
        "environment, as SLUICE_STAGE_KV_BLOCKS for --kv-blocks of "
        "sluice-stage, and else from the file of --config: a line per option, "
        "as kv-blocks = 64."}},
      {"exit status",
       {"0: it was told to end, and did; 1: it could not start, or failed. "
        "The log on standard error says why."}}};
  for (const OptionRow& row : SortedByName(service.options)) {
    ProgramOption option;
    option.name = "--" + row.name;
    option.value = row.value.unit;
    option.about = AboutText(row);
    option.choices = row.value.choices;
    program.options.push_back(std::move(option));
  }
  return program;
}

}  // namespace

std::string HelpText(const ServiceProgram& program) {
  std::string out =
      Cat("sluice-", program.name, ": ", program.about, "\n  ", program.example,
          "\n\n--version tells the version. A switch, an option without a "
          "value, is also\nwritten --NAME=false or --noNAME.\n");
  for (const OptionRow& row : SortedByName(program.options)) {
    out += Cat("\n  --", row.name, row.value.unit.empty() ? "" : " ",
               row.value.unit, "\n");
    AppendWrapped(AboutText(row), 6, out);
  }
  return out;
}

StatusOr<std::string> DescribeOptions(const ServiceProgram& program,
                                      const std::string& what) {
  if (what == "options") return OptionsFile(program);
  if (what == "markdown") return MarkdownTable(program);
  const Program described = DescribeService(program);
  if (what == "man") return ManualPage(described);
  auto script = CompletionScript(described, what);
  if (script.ok()) return script;
  return InvalidArgument(
      "--print must be man, markdown, options, bash, zsh or fish, got '", what,
      "'");
}

}  // namespace sluice
