#ifndef SLUICE_SERVICES_CLI_COMMANDS_H_
#define SLUICE_SERVICES_CLI_COMMANDS_H_

#include <string>
#include <vector>

#include "common/base/status.h"

// The commands of `sluice`. Each takes the words after its name, writes its
// answer to stdout and progress to stderr, and returns when it is done.
namespace sluice::cli {

using Words = std::vector<std::string>;

// Replaces this process by deploy/local/`script`; returns only on failure.
Status RunScript(const std::string& script, const Words& words);

// A table of the cluster's processes, readiness and load. FAILED_PRECONDITION
// if a process is dead or the cluster is not ready.
Status RunStatus(const Words& words);

// A conversation on the terminal; ends with the input.
Status RunChat(const Words& words);

// A completion of one prompt, streamed; with --dump-logits the logits of
// every position in a safetensors file.
Status RunGenerate(const Words& words);

// Load against an OpenAI endpoint: latencies, rates, a plot. An error if a
// request was not answered.
Status RunBench(const Words& words);

// Checks of an endpoint against references and against itself, as a report in
// Markdown. FAILED_PRECONDITION if one fails.
Status RunEval(const Words& words);

// Where the time of one traced request went, as a table; with --chrome FILE
// for Perfetto instead.
Status RunTrace(const Words& words);

// What a model folder or GGUF holds, and how it splits over stages.
Status RunInspect(const Words& words);

// A placement of a model's experts on hosts, by their memory, on stdout or
// in --out FILE; who has how much on stderr.
Status RunPlan(const Words& words);

// `experts heat`: how often each expert of a cluster's hosts was asked, as a
// picture on the terminal and, with --svg FILE, in a file.
Status RunExperts(const Words& words);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMANDS_H_
