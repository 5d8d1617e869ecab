#include "services/cli/command_table.h"

#include <algorithm>
#include <cstdio>

#include "services/cli/bench/bench_options.h"
#include "services/cli/eval/eval_command.h"

namespace sluice::cli {
namespace {

constexpr OptionSpec kRunDir = {"run-dir", "DIR",
                                "the cluster's run folder (the default one)"};
constexpr OptionSpec kUrl = {"url", "URL", "another server than the cluster's"};
constexpr OptionSpec kApiKey = {"api-key", "KEY",
                                "else the environment's SLUICE_API_KEY"};

// Where a request goes, and how its answer is sampled.
std::vector<OptionSpec> WithRequest(std::vector<OptionSpec> own) {
  const OptionSpec common[] = {
      {"max-tokens", "N", "tokens of an answer at most"},
      {"min-tokens", "N", "and at least"},
      {"temperature", "T", "0: always the likeliest token"},
      {"top-p", "P", "the likeliest tokens that make up P"},
      {"top-k", "N", "the N likeliest tokens"},
      {"min-p", "P", "tokens at least P times as likely as the likeliest"},
      {"seed", "N", "the same tokens again"},
      {"stop", "TEXT", "ends the answer where this text comes"},
      kUrl,
      kRunDir,
      kApiKey};
  own.insert(own.end(), std::begin(common), std::end(common));
  return own;
}

// Options whose meaning the command's own help text tells.
std::vector<OptionSpec> Named(const std::vector<const char*>& valued,
                              const std::vector<const char*>& switches) {
  std::vector<OptionSpec> options;
  for (const char* name : valued) options.push_back({name, "VALUE", ""});
  for (const char* name : switches) options.push_back({name, nullptr, ""});
  return options;
}

Status RunUp(const Words& words) { return RunScript("up", words); }
Status RunDown(const Words& words) { return RunScript("down", words); }

CommandSpec Script(const char* name, const char* words, const char* about,
                   Status (*run)(const Words&)) {
  CommandSpec command = {name, words, about, run, {}};
  command.is_script = true;
  return command;
}

std::vector<CommandSpec> ClusterCommands() {
  return {
      Script("up", "[OPTIONS]", "build if needed and start a cluster", RunUp),
      Script("down", "[--run-dir DIR]", "drain and stop it", RunDown),
      {"status",
       "",
       "the cluster's processes, readiness and load",
       RunStatus,
       {kRunDir, kApiKey}},
      {"chat", "", "a conversation on the terminal", RunChat,
       WithRequest({{"system", "TEXT", "what the model is told first"}})},
      {"generate", "PROMPT", "complete a prompt", RunGenerate,
       WithRequest({{"ignore-eos", nullptr, "go on behind an end token"},
                    {"dump-logits", "FILE",
                     "the logits of every position, as safetensors"}})},
      {"bench", "[OPTIONS]", "load against an OpenAI endpoint", RunBench,
       Named({"url",
              "run-dir",
              "api-key",
              "model",
              "endpoint",
              "concurrency",
              "rate",
              "burstiness",
              "requests",
              "duration",
              "warmup",
              "timeout",
              "max-in-flight",
              "prompt-tokens",
              "output-tokens",
              "file",
              "temperature",
              "seed",
              "extra",
              "slo",
              "csv",
              "json",
              "svg"},
             {"plain", "quiet"}),
       kBenchUsage},
      {"eval", "[OPTIONS] CHECK...",
       "is it right? against references, itself, others", RunEval,
       Named({"url", "run-dir", "api-key", "model", "reference", "tolerance",
              "gap", "crowd", "other", "other-tolerance", "other-api-key",
              "perplexity", "window", "stride", "max-perplexity", "prompts",
              "max-tokens", "out", "write-reference"},
             {"batch"}),
       kEvalUsage},
      {"trace",
       "REQUEST-ID",
       "where a traced request's time went",
       RunTrace,
       {{"chrome", "FILE", "for Perfetto, in the place of the table"},
        kUrl,
        kRunDir,
        kApiKey}},
  };
}

std::vector<CommandSpec> ModelCommands() {
  return {
      {"inspect",
       "MODEL",
       "what a model folder or GGUF holds",
       RunInspect,
       {{"stages", "N", "how its layers split over N stages"},
        {"sums", nullptr,
         "write checksums of its tensors beside it, which loads then check"}}},
      {"plan",
       "MODEL",
       "which experts go to which hosts, layers to stages",
       RunPlan,
       {{"hosts", "LIST", "NAME=HOST:PORT[:BYTES],... that take experts"},
        {"replicas", "R", "hosts that have an expert (1)"},
        {"local-bytes", "BYTES", "of experts that stay on the stages"},
        {"out", "FILE", "where the placement goes (stdout)"},
        {"stages", "N", "stages that the layers are split over"},
        {"stage-memory", "BYTES,..", "memory of each; K, M, G, T are 1024s"},
        {"placement", "FILE", "a placement that is there, for the split"},
        {"kv-blocks", "N", "of the stages, as sluice-stage takes them"},
        {"max-context", "N", "likewise"},
        {"max-step-tokens", "N", "likewise"},
        {"ranks", "R", "likewise"},
        {"weights", "MODE", "auto, bf16 or f32"}}},
      {"experts",
       "heat",
       "how often each expert was asked, as a picture",
       RunExperts,
       {{"hosts", "ADDRESS,..", "metrics addresses (the run folder's)"},
        {"since-start", nullptr, "not of the last minute alone"},
        {"columns", "N", "of the picture at most (128)"},
        {"svg", "FILE", "the same as a picture in a file"},
        kRunDir}},
  };
}

const OptionSpec* FindOption(const CommandSpec& command,
                             std::string_view name) {
  for (const OptionSpec& option : command.options) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

// The option's name in "--name" and "--name=value".
std::string_view NameIn(std::string_view word) {
  return word.substr(2, word.find('=') - 2);
}

// How many letters are put in, left out or exchanged between the two.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t above_left = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         above_left + (a[i - 1] == b[j - 1] ? 0 : 1)});
      above_left = above;
    }
  }
  return row[b.size()];
}

// ", did you mean --x?" if one of the command's options is near; where to
// read on.
std::string Hint(const CommandSpec& command, std::string_view name) {
  const OptionSpec* nearest = nullptr;
  size_t least = 3;
  for (const OptionSpec& option : command.options) {
    const size_t distance = Distance(name.substr(0, 64), option.name);
    if (distance >= least) continue;
    least = distance;
    nearest = &option;
  }
  const std::string meant =
      nearest == nullptr ? "" : Cat("; did you mean --", nearest->name, "?");
  return Cat(meant, "; sluice ", command.name, " --help lists its options");
}

// "-x", "-abc": a word of this form is meant as an option.
bool IsShortOption(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         std::all_of(word.begin() + 1, word.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

}  // namespace

const std::vector<CommandSpec>& Commands() {
  static const auto* const kCommands = [] {
    auto* commands = new std::vector<CommandSpec>(ClusterCommands());
    for (CommandSpec& command : ModelCommands()) {
      commands->push_back(std::move(command));
    }
    return commands;
  }();
  return *kCommands;
}

const CommandSpec* FindCommand(std::string_view name) {
  for (const CommandSpec& command : Commands()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::string UsageText() {
  std::string text = "usage: sluice COMMAND ...\n\n";
  for (const CommandSpec& command : Commands()) {
    const std::string form = Cat(command.name, " ", command.words);
    char line[160];
    std::snprintf(line, sizeof(line), "  %-25s %s\n", form.c_str(),
                  command.about);
    text += line;
  }
  return text + R"(
sluice COMMAND --help tells its options, sluice --version the version. Options
may stand before and behind the other words, those of up and down behind the
command alone; "--" ends them.

Exit status: 0 done, 1 it failed (status: a process is dead or the cluster is
not ready; bench: a request was not answered; eval: a check failed), 2 the
command line was wrong.
)";
}

std::string HelpText(const CommandSpec& command) {
  if (command.help != nullptr) return command.help;
  std::string text = Cat("usage: sluice ", command.name, " [OPTIONS]",
                         *command.words != '\0' ? " " : "", command.words,
                         "\n\n", command.about, "\n\n");
  for (const OptionSpec& option : command.options) {
    const std::string form =
        Cat("--", option.name, option.value == nullptr ? "" : " ",
            option.value == nullptr ? "" : option.value);
    char line[160];
    std::snprintf(line, sizeof(line), "  %-23s %s\n", form.c_str(),
                  option.about);
    text += line;
  }
  return text;
}

bool AsksForHelp(const CommandSpec& command, const Words& words) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") return true;
    if (!word.starts_with("--")) continue;
    const OptionSpec* option = FindOption(command, NameIn(word));
    const bool takes_next = option != nullptr && option->value != nullptr &&
                            word.find('=') == std::string::npos;
    if (takes_next) ++i;
  }
  return false;
}

StatusOr<Arguments> ParseArguments(const char* command, const Words& words) {
  const CommandSpec& spec = *FindCommand(command);
  std::vector<std::string> valued;
  std::vector<std::string> switches;
  for (const OptionSpec& option : spec.options) {
    (option.value != nullptr ? valued : switches).emplace_back(option.name);
  }
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (IsShortOption(word)) {
      return InvalidArgument("unknown option ", word, Hint(spec, word));
    }
    if (!word.starts_with("--")) continue;
    const OptionSpec* option = FindOption(spec, NameIn(word));
    if (option == nullptr) {
      return InvalidArgument("unknown option ", word, Hint(spec, NameIn(word)));
    }
    const bool has_value = word.find('=') != std::string::npos;
    if (option->value == nullptr && has_value) {
      return InvalidArgument("--", option->name, " takes no value");
    }
    if (option->value != nullptr && !has_value) ++i;
  }
  return Arguments::Parse(words, valued, switches);
}

StatusOr<Words> CommandFirst(const Words& words) {
  size_t at = 0;
  while (at < words.size() && words[at].starts_with("-")) {
    const std::string& word = words[at++];
    const std::string_view name =
        word.starts_with("--") ? NameIn(word) : std::string_view();
    const OptionSpec* option = nullptr;
    for (const CommandSpec& command : Commands()) {
      if (option == nullptr) option = FindOption(command, name);
    }
    if (option == nullptr) {
      return InvalidArgument("unknown option ", word, "; sluice --help lists ",
                             "the commands");
    }
    if (option->value != nullptr && word.find('=') == std::string::npos) ++at;
  }
  if (at >= words.size()) {
    return InvalidArgument("no command is named; sluice --help lists them");
  }
  Words ordered = {words[at]};
  const auto middle = words.begin() + static_cast<std::ptrdiff_t>(at);
  ordered.insert(ordered.end(), words.begin(), middle);
  ordered.insert(ordered.end(), middle + 1, words.end());
  return ordered;
}

}  // namespace sluice::cli
