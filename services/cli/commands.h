#ifndef SLUICE_SERVICES_CLI_COMMANDS_H_
#define SLUICE_SERVICES_CLI_COMMANDS_H_

namespace sluice::cli {

class CommandLine;

// Each function adds one command, or all of them with those of the
// launcher. A command prints its answer to stdout and its progress to stderr.
// Its
// --help tells what it does; the README has the exit codes.
void AddStatus(CommandLine& sluice);
void AddRun(CommandLine& sluice);
void AddChat(CommandLine& sluice);
void AddPs(CommandLine& sluice);  // ps and stop
void AddLogs(CommandLine& sluice);
void AddGenerate(CommandLine& sluice);
void AddBench(CommandLine& sluice);
void AddBenchModel(CommandLine& sluice);  // bench kernels and bench layers
void AddBenchMachine(CommandLine& sluice);
void AddEval(CommandLine& sluice);  // and the two below
void AddMakeReference(CommandLine& sluice);
void AddEvalCosts(CommandLine& sluice);
void AddTrace(CommandLine& sluice);
void AddInspect(CommandLine& sluice);
void AddConvert(CommandLine& sluice);
void AddHub(CommandLine& sluice);  // pull, list, show and rm
void AddPacked(CommandLine& sluice);
void AddPlan(CommandLine& sluice);
void AddDoctor(CommandLine& sluice);
void AddProbe(CommandLine& sluice);
void AddResetTerm(CommandLine& sluice);
void AddCompletion(CommandLine& sluice);
void AddCommands(CommandLine& sluice);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMANDS_H_
