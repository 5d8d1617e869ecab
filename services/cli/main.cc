// sluice: the one command for people.
#include <cstdio>

#include "services/cli/command_line.h"
#include "services/cli/commands.h"

int main(int argc, char** argv) {
  using sluice::Status;
  sluice::cli::CommandLine sluice(SLUICE_VERSION);
  sluice::cli::AddCommands(sluice);
  const Status done = sluice.Run({argv + 1, argv + argc});
  if (done.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", sluice::Message(done).c_str());
  return done.code() == sluice::StatusCode::kInvalidArgument ? 2 : 1;
}
