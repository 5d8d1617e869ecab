#include "common/service/options_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

namespace sluice {
namespace {

using Kind = OptionValue::Kind;

// Returns the place behind the quoted string that begins at `begin`; `begin`
// where the string does not end in its line.
size_t EndOfQuoted(const std::string& text, size_t begin) {
  const char quote = text[begin];
  for (size_t i = begin + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == quote) return i + 1;
    if (text[i] == '\\' && quote == '"') ++i;
  }
  return begin;
}

// CLI11 takes a '#' inside quotes for a comment, too.
std::string WithoutComments(const std::string& text) {
  std::string out;
  char before = '\n';  // the last character that is no blank
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t end = i + 1;
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if ((c == '"' || c == '\'') &&
        std::string("\n=[,").find(before) != std::string::npos) {
      end = std::max(end, EndOfQuoted(text, i));
    }
    out.append(text, i, end - i);
    if (c != ' ' && c != '\t') before = c;
    i = end;
  }
  return out;
}

// Returns the text in quotes, in these where both kinds serve.
std::string Quoted(const std::string& text, char quote) {
  const bool has = text.find(quote) != text.npos ||
                   (quote == '"' && text.find('\\') != text.npos);
  if (has) quote = quote == '"' ? '\'' : '"';
  return quote + text + quote;
}

std::string TomlLine(const OptionRow& row, char quote) {
  const std::string text = row.value.get();
  std::string value = text;
  if (row.value.kind == Kind::kText) value = Quoted(text, quote);
  if (row.value.kind == Kind::kList) {
    std::vector<std::string> items;
    option::Read(text, items);
    value.clear();
    for (const std::string& item : items) {
      value += Cat(value.empty() ? "" : ", ", Quoted(item, quote));
    }
    value = Cat("[", value, "]");
  }
  return Cat(row.name, " = ", value, "\n");
}

bool Says(const std::string& line, const OptionRow& row) {
  const auto read = ParseOptionsFile(line);
  return read.ok() && read->size() == 1 && read->front().name == row.name &&
         read->front().text == row.value.get();
}

}  // namespace

StatusOr<std::vector<FileOption>> ParseOptionsFile(const std::string& text) {
  std::istringstream in(WithoutComments(text));
  CLI::ConfigTOML config;
  config.comment('\0');
  std::vector<FileOption> options;
  try {
    for (CLI::ConfigItem& item : config.from_config(in)) {
      FileOption& option = options.emplace_back();
      if (!item.parents.empty() || item.name == "++" || item.name == "--") {
        option.table = item.parents.empty() ? "" : item.parents.front();
      }
      option.name = std::move(item.name);
      option.text = CLI::detail::join(item.inputs, ",");
    }
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  return options;
}

StatusOr<std::string> OptionsFile(const ServiceProgram& program) {
  std::string out;
  for (const OptionRow& row : SortedByName(program.options)) {
    if (row.name == "config" || row.name == "print") continue;
    std::string line = TomlLine(row, '"');
    if (!Says(line, row)) line = TomlLine(row, '\'');
    if (!Says(line, row)) {
      return InvalidArgument("--", row.name, " '", row.value.get(),
                             "': a file of options cannot have this text");
    }
    out += line;
  }
  return out;
}

}  // namespace sluice
