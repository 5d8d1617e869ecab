#include "common/manual/manual_page.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "common/base/cat.h"

namespace sluice {
namespace {

// Returns a text that roff prints as it is, on one line.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '"') {
      out += "\\(dq";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return text;
}

std::string Date() {
  const char* seconds = std::getenv("SOURCE_DATE_EPOCH");
  if (seconds == nullptr || *seconds == '\0') return "";
  const time_t time = std::strtoll(seconds, nullptr, 10);
  tm day = {};
  char text[32] = "";
  if (::gmtime_r(&time, &day) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d", &day);
  }
  return text;
}

std::string Head(const Program& program, const std::string& name,
                 const std::string& about) {
  return Cat(".TH \"", Escaped(Upper(name)), "\" \"", program.section, "\" \"",
             Date(), "\" \"", Escaped(Cat(program.name, " ", program.version)),
             "\" \"Sluice\"\n.SH NAME\n", Escaped(name), " \\- ",
             Escaped(about), "\n");
}

std::string Section(const std::string& heading,
                    const std::vector<std::string>& paragraphs) {
  if (paragraphs.empty()) return "";
  std::string out = Cat(".SH ", Escaped(Upper(heading)), "\n");
  for (size_t i = 0; i < paragraphs.size(); ++i) {
    out += Cat(i == 0 ? "" : ".PP\n", Escaped(paragraphs[i]), "\n");
  }
  return out;
}

std::string Items(const std::string& heading,
                  const std::vector<ProgramOption>& options) {
  if (options.empty()) return "";
  std::string out = Cat(".SH ", heading, "\n");
  for (const ProgramOption& option : options) {
    const bool argument = !option.name.starts_with('-');
    out +=
        Cat(".TP\n", argument ? "\\fI" : "\\fB", Escaped(option.name), "\\fR");
    if (!option.value.empty() && !argument) {
      out += Cat(" \\fI", Escaped(option.value), "\\fR");
    }
    out += Cat("\n", Escaped(option.about));
    std::string choices;
    for (const std::string& choice : option.choices) {
      choices += Cat(choices.empty() ? "" : ", ", choice);
    }
    if (!choices.empty()) out += Cat("; ", Escaped(choices));
    out += "\n";
  }
  return out;
}

std::string Synopsis(const std::string& words, bool has_options,
                     const std::vector<ProgramOption>& arguments) {
  std::string out = Cat(".SH SYNOPSIS\n\\fB", Escaped(words), "\\fR");
  if (has_options) out += " [\\fIOPTIONS\\fR]";
  for (const ProgramOption& argument : arguments) {
    const std::string name = Cat("\\fI", Escaped(argument.name), "\\fR",
                                 argument.many ? " ..." : "");
    out += argument.required ? " " + name : Cat(" [", name, "]");
  }
  return out + "\n";
}

}  // namespace

std::string ManualPage(const Program& program) {
  std::string page = Head(program, program.name, program.about);
  const bool has_commands = !program.commands.empty();
  page += Synopsis(program.name, !program.options.empty(), {});
  if (has_commands) {
    page.pop_back();
    page += " \\fICOMMAND\\fR ...\n";
  }
  page += Section("description", program.description);
  page += Items("OPTIONS", program.options);
  if (has_commands) page += ".SH COMMANDS\n";
  for (const ProgramCommand& command : program.commands) {
    page += Cat(".TP\n\\fB", Escaped(command.name), "\\fR\n",
                Escaped(command.about), "\n");
  }
  for (const auto& [heading, paragraphs] : program.sections) {
    page += Section(heading, paragraphs);
  }
  if (!has_commands) return page;
  page += ".SH SEE ALSO\n";
  for (const ProgramCommand& command : program.commands) {
    page += Cat(".BR ", Escaped(Cat(program.name, "-", command.name)), " (",
                program.section, ")",
                &command == &program.commands.back() ? "" : ",", "\n");
  }
  return page;
}

std::string ManualPage(const Program& program, const ProgramCommand& command) {
  const std::string name = Cat(program.name, "-", command.name);
  std::string page = Head(program, name, command.about);
  page += Synopsis(Cat(program.name, " ", command.name),
                   !command.options.empty(), command.arguments);
  page += Section("description", command.description);
  page += Items("ARGUMENTS", command.arguments);
  page += Items("OPTIONS", command.options);
  return page +
         Cat(".SH SEE ALSO\n.BR ", program.name, " (", program.section, ")\n");
}

}  // namespace sluice
