#include <cstdio>
#include <memory>
#include <string>

#include "common/pipeline/gateway/reset_term.h"
#include "common/rpc/transport_options.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr int kMaxResetSeconds = 3600;

struct ResetTermOptions {
  std::string stage;
  rpc::TransportOptions transport;
  std::string roles = "auto";
  int timeout = 10;
};

Status RunResetTerm(const ResetTermOptions& options) {
  rpc::TransportOptions transport = options.transport;
  SLUICE_ASSIGN_OR_RETURN(transport.roles, rpc::ParseTlsRoles(options.roles));
  SLUICE_RETURN_IF_ERROR(rpc::Validate(transport));
  const auto term = ResetTerm(options.stage, transport,
                              std::chrono::seconds(options.timeout));
  if (!term.ok()) return Annotate(term.status(), options.stage);
  std::printf("%s: term %llu is reset\n", options.stage.c_str(),
              static_cast<unsigned long long>(*term));
  return OkStatus();
}

}  // namespace

void AddResetTerm(CommandLine& sluice) {
  const auto options = std::make_shared<ResetTermOptions>();
  CLI::App& reset =
      sluice.Add("reset-term",
                 "makes a stage forget its term, which is far above the "
                 "others', so that its gateway takes it again",
                 [options] { return RunResetTerm(*options); });
  reset
      .add_option("STAGE", options->stage,
                  "its address, as the gateway's --stages has it")
      ->required();
  reset.add_option("--tls-cert", options->transport.tls_cert,
                   "PEM file: a certificate with a gateway's role");
  reset.add_option("--tls-key", options->transport.tls_key, "its key");
  reset.add_option("--tls-ca", options->transport.tls_ca,
                   "PEM file: who signs the stages");
  reset
      .add_option("--tls-roles", options->roles,
                  "whether the stage's certificate needs the role `stage`: "
                  "require, allow, or auto: as the own one has a role")
      ->capture_default_str();
  reset.add_flag("--insecure", options->transport.insecure,
                 "plain text beyond loopback");
  reset
      .add_option("--timeout", options->timeout,
                  "seconds until the answer must be there")
      ->check(Within(1, kMaxResetSeconds))
      ->capture_default_str();
}

}  // namespace sluice::cli
