#include "common/service/read_options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/text_file.h"
#include "common/manual/nearest_word.h"
#include "common/service/options_file.h"

namespace sluice {
namespace {

using Kind = OptionValue::Kind;
using Texts = std::vector<std::pair<const OptionRow*, std::string>>;

std::string VariableOf(const ServiceProgram& program, const OptionRow& row) {
  std::string name = Cat("SLUICE_", program.name, "_", row.name);
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return name;
}

// `source` says where `text` was found: "o.toml: ".
Status Add(const std::string& source, const OptionRow& row, std::string text,
           Texts& texts) {
  const std::string flaw = row.value.flaw(text);
  if (!flaw.empty()) {
    return InvalidArgument(source, "--", row.name, " '", text, "': ", flaw);
  }
  texts.emplace_back(&row, std::move(text));
  return OkStatus();
}

Status ReadFile(const ServiceProgram& program, const std::string& file,
                Texts& texts) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  const auto options = ParseOptionsFile(text);
  if (!options.ok()) return Annotate(options.status(), file);
  for (const FileOption& option : *options) {
    if (option.table.has_value()) {
      return InvalidArgument(file, ": [", *option.table,
                             "]: a service's file has no tables");
    }
    const OptionRow* row = FindOption(program.options, option.name);
    if (row == nullptr || row->name == "config" || row->name == "print") {
      std::string name = option.name;
      std::replace(name.begin(), name.end(), '_', '-');
      return InvalidArgument(file, ": there is no option --", name);
    }
    SLUICE_RETURN_IF_ERROR(Add(file + ": ", *row, option.text, texts));
  }
  return OkStatus();
}

Status ReadEnvironment(const ServiceProgram& program, Texts& texts) {
  for (const OptionRow& row : program.options) {
    const std::string variable = VariableOf(program, row);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    SLUICE_RETURN_IF_ERROR(Add(variable + ": ", row, value, texts));
  }
  return OkStatus();
}

Status UnknownOption(const ServiceProgram& program, const std::string& name) {
  std::vector<std::string> known;
  for (const OptionRow& row : program.options) known.push_back(row.name);
  const std::string near = NearestWord(name, known);
  return InvalidArgument(
      "unknown option --", name,
      near.empty() ? "" : Cat(" (did you mean --", near, "?)"), "; see --help");
}

// Returns the text that a word without dashes and value asks for; empty if that
// is an option, or unknown. Abseil's names of --help stay.
std::string Asked(const std::string& name) {
  for (const char* const help : {"help", "helpfull", "helpmatch", "helpon",
                                 "helppackage", "helpshort"}) {
    if (name == help) return "help";
  }
  return name == "version" ? name : "";
}

// Words in the form that ReadOptions tells.
Status ReadWords(const ServiceProgram& program,
                 const std::vector<std::string>& words, GivenOptions& given) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool ends = word == "--";  // nothing may stand behind it
    if (ends && i + 1 == words.size()) break;
    if (ends || word.size() < 2 || word[0] != '-') {
      return InvalidArgument("unknown argument '", words[ends ? i + 1 : i],
                             "'; see --help");
    }
    const size_t begin = word.starts_with("--") ? 2 : 1;
    const size_t equals = std::min(word.find('=', begin), word.size());
    const bool has_text = equals < word.size();
    const std::string name = word.substr(begin, equals - begin);
    const OptionRow* row = FindOption(program.options, name);
    bool off = false;
    if (row == nullptr && name.starts_with("no")) {
      row = FindOption(program.options, name.substr(2));
      off = row != nullptr && row->value.kind == Kind::kSwitch;
      if (!off) row = nullptr;
    }
    std::string text = has_text ? word.substr(equals + 1) : "";
    if (row == nullptr && !Asked(name).empty()) {
      const bool takes_text = name == "helpon" || name == "helpmatch";
      if (has_text && text != "true" && !takes_text) {
        return InvalidArgument("--", name, " takes no value, got '", text, "'");
      }
      given.asked = Asked(name);
      continue;
    }
    if (row == nullptr) return UnknownOption(program, name);
    if (row->value.kind == Kind::kSwitch) {
      if (off && has_text) {
        return InvalidArgument("--", name, " takes no value, got '", text, "'");
      }
      if (!has_text) text = off ? "false" : "true";
    } else if (!has_text) {
      if (i + 1 == words.size()) {
        return InvalidArgument("--", row->name, " needs a value");
      }
      text = words[++i];
    }
    if (row->name == "print") given.asked = text;
    SLUICE_RETURN_IF_ERROR(Add("", *row, std::move(text), given.texts));
  }
  return OkStatus();
}

// Returns the last text of option `name`, else its variable.
std::string LastText(const ServiceProgram& program, const Texts& texts,
                     const std::string& name) {
  std::string last;
  const OptionRow* row = FindOption(program.options, name);
  const char* set = std::getenv(VariableOf(program, *row).c_str());
  if (set != nullptr) last = set;
  for (const auto& [given, text] : texts) {
    if (given == row) last = text;
  }
  return last;
}

}  // namespace

StatusOr<GivenOptions> ReadOptions(const ServiceProgram& program,
                                   const std::vector<std::string>& words) {
  GivenOptions given;
  SLUICE_RETURN_IF_ERROR(ReadWords(program, words, given));
  if (!given.asked.empty() && given.asked != "options") return given;
  Texts texts;
  const std::string file = LastText(program, given.texts, "config");
  if (!file.empty()) SLUICE_RETURN_IF_ERROR(ReadFile(program, file, texts));
  SLUICE_RETURN_IF_ERROR(ReadEnvironment(program, texts));
  given.texts.insert(given.texts.begin(), texts.begin(), texts.end());
  return given;
}

Status ApplyOptions(const ServiceProgram& program, const GivenOptions& given) {
  for (const OptionRow& row : program.options) {
    const std::string* last = nullptr;
    for (const auto& [of, text] : given.texts) {
      if (of == &row) last = &text;
    }
    if (last == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(row.value.set(row.name, *last));
  }
  return OkStatus();
}

}  // namespace sluice
