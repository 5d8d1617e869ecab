#include "services/stage/stage_main.h"

#include <utility>

#include "common/base/log.h"
#include "common/rpc/grpc_log.h"
#include "common/service/service_main.h"
#include "services/stage/stage_flags.h"

namespace sluice::stage {
namespace {

// A lead that drains because a follower is told to end begins later, and takes
// some seconds more for the steps under way.
constexpr auto kLeadsDrain = std::chrono::seconds(15);

// A process with ranks of another one's stage, until a signal comes.
Status Follow(FollowerOptions options, const sigset_t& signals,
              Duration drain_time) {
  options.on_failed = [](const Status& why) {
    LogError(Message(why));
    AskToEnd("the ranks cannot be loaded");
  };
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          FollowerServer::Start(std::move(options)));
  SLUICE_RETURN_IF_ERROR(AwaitLoad(signals, [&server](TimePoint deadline) {
    return server->WaitLoaded(deadline);
  }));
  const Status why = AwaitSignal(signals);
  UnblockSignals(signals);
  server->Drain(Clock::now() + drain_time + kLeadsDrain);
  server->Stop();
  LogInfo("stopped");
  return why;
}

// `rows`: of `flags`.
Status Run(const StageFlags& flags, const OptionRows& rows,
           const sigset_t& signals) {
  if (!flags.lead.empty()) {
    SLUICE_ASSIGN_OR_RETURN(FollowerOptions follower,
                            ResolveFollower(flags, rows));
    return Follow(std::move(follower), signals, flags.drain_timeout);
  }
  SLUICE_ASSIGN_OR_RETURN(StageServerOptions options, ResolveStage(flags));
  options.ask_to_end = [] {
    AskToEnd("a process with some of its ranks ends");
  };
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          StageServer::Start(std::move(options)));
  // It ends like one that is told to: a supervisor's next one hears again.
  rpc::OnDeaf([] { AskToEnd("no connection is accepted any more"); });
  return ServeAndDrain(*server, signals, flags.port_file, flags.drain_timeout);
}

}  // namespace

int StageMain(int argc, char** argv, const BackendFactory& make_backends) {
  StageFlags flags;
  flags.server.stage.make_backends = make_backends;
  const OptionRows rows = RowsOf(flags);
  return ServiceMain(
      argc, argv,
      {"stage", "serves a range of a model's layers to a gateway",
       "sluice-stage --model PATH --listen 127.0.0.1:7001 --layers 0-14", rows},
      [&flags, &rows](const sigset_t& signals) {
        return Run(flags, rows, signals);
      });
}

}  // namespace sluice::stage
