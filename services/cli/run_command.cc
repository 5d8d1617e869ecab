// The commands run and chat.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/conversation.h"
#include "services/cli/model_cluster.h"

namespace sluice::cli {
namespace {

constexpr char kModelAbout[] =
    "a Hugging Face folder or a GGUF, a hub's ORG/NAME[@REVISION][:QUANT], or "
    "default: the default model";
constexpr char kKeepAbout[] =
    "a cluster that was started for this goes on afterwards";

constexpr int kSilenceMs = 1000;  // before standard input is asked for by name

struct RunOptions {
  ModelClusterOptions cluster;
  ChatSettings settings;
  EndpointOptions endpoint;  // of chat without a model
  Words prompt;
};

StatusOr<std::string> ReadStandardInput() {
  std::string text;
  char bytes[65536];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got == 0) return text;
    if (got > 0) {
      text.append(bytes, static_cast<size_t>(got));
    } else if (errno != EINTR) {
      return Unavailable("standard input: ", std::strerror(errno));
    }
  }
}

// Returns the words of the command line, and behind them what standard input
// has, unless that is a terminal.
StatusOr<std::string> PromptOf(const Words& words) {
  std::string prompt;
  for (const std::string& word : words) {
    prompt += Cat(prompt.empty() ? "" : " ", word);
  }
  if (isatty(STDIN_FILENO) != 0) return prompt;
  pollfd input_comes = {STDIN_FILENO, POLLIN, 0};
  if (!prompt.empty() && poll(&input_comes, 1, kSilenceMs) == 0) {
    std::fputs(
        "reading more of the prompt from standard input, until it ends\n",
        stderr);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string input, ReadStandardInput());
  if (!prompt.empty() && !input.empty()) prompt += "\n\n";
  prompt += input;
  if (!prompt.empty()) return prompt;
  return InvalidArgument(
      "no prompt: standard input is no terminal and is empty; sluice run MODEL "
      "PROMPT gives one");
}

Status RunModel(const RunOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string prompt, PromptOf(options.prompt));
  Interrupts interrupts;
  SLUICE_ASSIGN_OR_RETURN(const auto cluster,
                          ModelCluster::Open(options.cluster, interrupts));
  if (prompt.empty()) {
    return Converse(cluster->base(), options.settings, interrupts);
  }
  return AnswerPrompt(cluster->base(), options.settings, prompt, interrupts);
}

Status RunChat(const RunOptions& options) {
  const ModelClusterOptions& own = options.cluster;
  Interrupts interrupts;
  if (own.model.empty()) {
    if (own.keep || !own.up.empty()) {
      return InvalidArgument(own.keep ? "--keep" : "--",
                             " is for a cluster that chat starts: name MODEL");
    }
    EndpointOptions endpoint = options.endpoint;
    endpoint.api_key = own.api_key;
    SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base, FindGateway(endpoint));
    return Converse(base, options.settings, interrupts);
  }
  if (!options.endpoint.url.empty() || !options.endpoint.run_dir.empty()) {
    return InvalidArgument(
        "MODEL and a server, ",
        options.endpoint.url.empty() ? options.endpoint.run_dir
                                     : options.endpoint.url,
        " (--url, --run-dir or their variables), are both given: take one");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto cluster,
                          ModelCluster::Open(own, interrupts));
  return Converse(cluster->base(), options.settings, interrupts);
}

void AddUpOptions(CommandLine& sluice, CLI::App& command, Words& up) {
  sluice.TakeUpOptions(command.get_name(), up);
  command.footer(
      "Words behind -- are options of sluice up, as in: -- --stages 3. With "
      "them a\ncluster is started even if one serves the model; without, it "
      "has one stage.");
}

}  // namespace

void AddRun(CommandLine& sluice) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& run = sluice.Add(
      "run", "answers a prompt by a model, for which a cluster is started",
      [options] { return RunModel(*options); });
  run.add_option("MODEL", options->cluster.model, kModelAbout)->required();
  run.add_option("PROMPT", options->prompt,
                 "what is answered; what standard input has, unless it is a "
                 "terminal, comes behind it. Neither: a conversation");
  run.add_flag("--keep", options->cluster.keep, kKeepAbout);
  AddChatSettings(run, options->settings);
  run.add_option("--api-key", options->cluster.api_key,
                 "where the server has keys");
  AddUpOptions(sluice, run, options->cluster.up);
}

void AddChat(CommandLine& sluice) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& chat = sluice.Add("chat", "a conversation on the terminal",
                              [options] { return RunChat(*options); });
  chat.add_option("MODEL", options->cluster.model,
                  Cat(kModelAbout, "; without it, the cluster that runs"));
  chat.add_flag("--keep", options->cluster.keep, kKeepAbout);
  AddChatSettings(chat, options->settings);
  AddServerSettings(chat, options->settings);
  chat.add_option("--url", options->endpoint.url,
                  "another server than the cluster's");
  chat.add_option("--run-dir", options->endpoint.run_dir,
                  "the cluster's run folder, unless it is the default one");
  chat.add_option("--api-key", options->cluster.api_key,
                  "where the server has keys");
  AddUpOptions(sluice, chat, options->cluster.up);
}

}  // namespace sluice::cli
