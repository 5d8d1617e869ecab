// sluice: the one command for people.

#include <cstdio>

#include "services/cli/commands.h"

namespace {

constexpr char kUsage[] = R"(usage: sluice COMMAND ...

  up [OPTIONS]        build if needed and start a cluster (deploy/local/up)
  down [--run-dir D]  drain and stop it
  status              its processes, readiness and load
  chat                a conversation on the terminal; --system TEXT
  generate PROMPT     complete a prompt; --dump-logits FILE
  bench               load against an OpenAI endpoint; bench --help
  eval                is it right? against references, itself, another
                      endpoint, a text; eval --help
  trace REQUEST-ID    where a traced request's time went; --chrome FILE
  inspect MODEL       what a model folder or GGUF holds; --stages N
  plan MODEL          which experts go to which hosts, by their memory;
                      --hosts NAME=HOST:PORT[:BYTES],... --replicas R
                      --local-bytes BYTES --out FILE
  experts heat        how often each expert was asked, as a picture;
                      --hosts METRICS-ADDRESS,... --since-start --svg FILE

chat and generate take --max-tokens --temperature --top-p --top-k --min-p
--seed --stop. status, chat and generate use the cluster of --run-dir DIR
(default: the default run folder); chat and generate also --url URL and
--api-key KEY (default: the environment's SLUICE_API_KEY).

Exit status: 0 done, 1 it failed (status: a process is dead or the cluster is
not ready; bench: a request was not answered; eval: a check failed), 2 the
command line was wrong.
)";

sluice::Status Dispatch(const std::string& command,
                        const sluice::cli::Words& words) {
  using namespace sluice::cli;
  if (command == "up" || command == "down") return RunScript(command, words);
  if (command == "status") return RunStatus(words);
  if (command == "chat") return RunChat(words);
  if (command == "generate") return RunGenerate(words);
  if (command == "inspect") return RunInspect(words);
  if (command == "plan") return RunPlan(words);
  if (command == "experts") return RunExperts(words);
  if (command == "trace") return RunTrace(words);
  if (command == "bench") return RunBench(words);
  if (command == "eval") return RunEval(words);
  return sluice::InvalidArgument("unknown command '", command, "'\n", kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "--help";
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kUsage, stdout);
    return argc > 1 ? 0 : 2;
  }
  const sluice::Status done =
      Dispatch(command, sluice::cli::Words(argv + 2, argv + argc));
  if (done.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", sluice::Message(done).c_str());
  return done.code() == sluice::StatusCode::kInvalidArgument ? 2 : 1;
}
