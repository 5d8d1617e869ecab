#ifndef SLUICE_COMMON_GRAMMAR_COMPILE_SERVER_H_
#define SLUICE_COMMON_GRAMMAR_COMPILE_SERVER_H_

namespace sluice {

// Returns whether CompileProcess started this program: its main function then
// returns RunCompileProcess(), and does nothing else.
bool IsCompileProcess(int argc, char** argv);

// Serves CompileProcess: forks a process for every trial, and says how it
// ended. Ends with the process that started it. Returns the exit code.
int RunCompileProcess();

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_COMPILE_SERVER_H_
