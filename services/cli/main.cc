// sluice: the one command for people.
#include <cstdio>

#include "common/base/catch_exceptions.h"
#include "common/service/version_text.h"
#include "common/tools/chat/terminal_text.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

int main(int argc, char** argv) {
  using sluice::Status;
  Status done;
  const Status ran = sluice::CatchExceptions("sluice", [&] {
    sluice::cli::CommandLine sluice(sluice::VersionText("sluice"));
    sluice::cli::AddCommands(sluice);
    done = sluice.Run({argv + 1, argv + argc});
  });
  if (!ran.ok()) done = ran;
  if (done.ok()) return 0;
  // It may have a server's words.
  std::fprintf(stderr, "error: %s\n",
               sluice::chat::WithoutControls(sluice::Message(done)).c_str());
  return sluice::cli::ExitCodeOf(done);
}
