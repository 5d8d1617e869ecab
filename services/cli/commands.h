#ifndef SLUICE_SERVICES_CLI_COMMANDS_H_
#define SLUICE_SERVICES_CLI_COMMANDS_H_

namespace sluice::cli {

class CommandLine;

// Each function adds one command, which prints its answer to stdout and its
// progress to stderr.

// A table of the cluster's processes, readiness and load. FAILED_PRECONDITION
// if a process is dead or the cluster is not ready.
void AddStatus(CommandLine& sluice);

// A conversation on the terminal; ends with the input.
void AddChat(CommandLine& sluice);

// A streamed completion of one prompt; --dump-logits writes the logits of every
// position to a safetensors file.
void AddGenerate(CommandLine& sluice);

// Load against an OpenAI endpoint: latencies and rates. An error for an
// unanswered request.
void AddBench(CommandLine& sluice);

// `bench kernels` and `bench layers`: a model in this process, each operation
// beside the limits of this CPU, and where the time of a step goes.
void AddBenchModel(CommandLine& sluice);

// Checks of an endpoint against references and against itself, as a Markdown
// report. FAILED_PRECONDITION for a failed check.
void AddEval(CommandLine& sluice);

// The parts of one traced request's time, as a table; --chrome FILE writes a
// Perfetto trace.
void AddTrace(CommandLine& sluice);

// The content of a model folder or GGUF, and its split over stages.
void AddInspect(CommandLine& sluice);

// A model folder with quantised matrices, made of another.
void AddConvert(CommandLine& sluice);

// A placement of a model's experts on hosts by their memory, to stdout or --out
// FILE, with each host's share on stderr; a split of layers over stages.
void AddPlan(CommandLine& sluice);

// A shell's completion script.
void AddCompletion(CommandLine& sluice);

// All of the above, and the scripts `up` and `down`.
void AddCommands(CommandLine& sluice);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMANDS_H_
