#ifndef SLUICE_SERVICES_CLI_COMMANDS_H_
#define SLUICE_SERVICES_CLI_COMMANDS_H_

namespace sluice::cli {

class CommandLine;

// Each adds one command, which writes its answer to stdout and progress to
// stderr.

// A table of the cluster's processes, readiness and load. FAILED_PRECONDITION
// if a process is dead or the cluster is not ready.
void AddStatus(CommandLine& sluice);

// A conversation on the terminal; ends with the input.
void AddChat(CommandLine& sluice);

// A completion of one prompt, streamed; with --dump-logits the logits of
// every position in a safetensors file.
void AddGenerate(CommandLine& sluice);

// Load against an OpenAI endpoint: latencies and rates. An error if a request
// was not answered.
void AddBench(CommandLine& sluice);

// Checks of an endpoint against references and against itself, as a report in
// Markdown. FAILED_PRECONDITION if one fails.
void AddEval(CommandLine& sluice);

// Where the time of one traced request went, as a table; with --chrome FILE
// for Perfetto instead.
void AddTrace(CommandLine& sluice);

// What a model folder or GGUF holds, and how it splits over stages.
void AddInspect(CommandLine& sluice);

// A placement of a model's experts on hosts, by their memory, on stdout or in
// --out FILE, with what each host has on stderr; how layers split over stages.
void AddPlan(CommandLine& sluice);

// The script by which a shell completes the command line.
void AddCompletion(CommandLine& sluice);

// All of the above, and the scripts `up` and `down`.
void AddCommands(CommandLine& sluice);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMANDS_H_
