#include "common/rpc/transport.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>
#include <utility>

#include "common/base/log_limit.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/health_service.h"
#include "common/rpc/hello.h"
#include "common/rpc/status.h"

namespace sluice::rpc {
namespace {

namespace tls = grpc::experimental;

// Of one connection: each stream of a peer has its own, and probes are short.
constexpr int kMaxConcurrentStreams = 16;
constexpr int64_t kMaxLookahead = int64_t{64} << 20;
// Bytes of a stream that a server takes in before it reads the stream.
constexpr int kServerLookahead = 64 << 10;
// gRPC's buffers of one server, all connections together: at least this much,
// and room for some of the largest messages.
constexpr int64_t kMinServerMemory = int64_t{1} << 30;
constexpr int64_t kServerMessages = 2;
constexpr int kMaxPingStrikes = 64;
// A connection without a stream is closed after this time.
constexpr int kIdleMs = 60'000;
constexpr int kHandshakeMs = 10'000;
// Between two looks at the TLS files.
constexpr unsigned int kReloadSeconds = 2;

int Milliseconds(Duration d) {
  return static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

Status CheckReadable(const char* flag, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (in && in.peek() != std::ifstream::traits_type::eof()) return OkStatus();
  return NotFound(flag, " ", path, ": ",
                  in ? "it is empty" : std::strerror(errno));
}

// Arguments of both ends. A silent peer is found within peer_timeout: a quarter
// of it passes until the ping, the rest is for the answer. So a peer that was
// stopped for a good part of it is not given up, and does not give up others
// when it wakes. Both sides must allow such pings, or the server drops the
// connection ("too many pings").
std::vector<std::pair<std::string, int>> CommonArguments(
    const TransportOptions& options) {
  const int quarter = std::max(25, Milliseconds(options.peer_timeout) / 4);
  return {
      {GRPC_ARG_KEEPALIVE_TIME_MS, quarter},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3 * quarter},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
       static_cast<int>(options.max_message_bytes)},
      {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH,
       static_cast<int>(options.max_message_bytes)},
      {GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM, GRPC_COMPRESS_NONE},
  };
}

// Watches the TLS files for the life of the process: one thread of gRPC's per
// set of files, however many channels use them. NOT_FOUND and UNAVAILABLE, at
// first, for files that cannot be read and that are no key and certificate.
StatusOr<std::shared_ptr<tls::CertificateProviderInterface>> Watched(
    const TransportOptions& options) {
  using Files = std::tuple<std::string, std::string, std::string>;
  static std::mutex mutex;
  static auto* watched =
      new std::map<Files, std::shared_ptr<tls::CertificateProviderInterface>>();
  const std::lock_guard<std::mutex> lock(mutex);
  auto& provider =
      (*watched)[{options.tls_cert, options.tls_key, options.tls_ca}];
  if (provider != nullptr) return provider;
  SLUICE_RETURN_IF_ERROR(CheckReadable("--tls-cert", options.tls_cert));
  SLUICE_RETURN_IF_ERROR(CheckReadable("--tls-key", options.tls_key));
  SLUICE_RETURN_IF_ERROR(CheckReadable("--tls-ca", options.tls_ca));
  SLUICE_RETURN_IF_ERROR(CheckKeyPair(options.tls_cert, options.tls_key));
  provider = std::make_shared<tls::FileWatcherCertificateProvider>(
      options.tls_key, options.tls_cert, options.tls_ca, kReloadSeconds);
  return provider;
}

// Holds callers to the roles of their certificates, before a call is taken in.
class RoleCheck : public grpc::AuthMetadataProcessor {
 public:
  RoleCheck(MethodRoles rules, bool required)
      : rules_(std::move(rules)), required_(required) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri :
         context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
      uris.emplace_back(uri.data(), uri.size());
    }
    const auto path = metadata.find(":path");
    const std::string method =
        path == metadata.end()
            ? ""
            : std::string(path->second.data(), path->second.size());
    const Status status = CheckRole(rules_, method, RolesOf(uris), required_);
    if (!status.ok()) refused_.Write(LogLevel::kWarning, Message(status));
    return ToGrpc(status);
  }

 private:
  const MethodRoles rules_;
  const bool required_;
  LogLimit refused_{5, std::chrono::seconds(10)};
};

StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const TransportOptions& options, MethodRoles roles) {
  if (!options.tls()) return grpc::InsecureServerCredentials();
  SLUICE_ASSIGN_OR_RETURN(auto files, Watched(options));
  SLUICE_ASSIGN_OR_RETURN(const bool required, RequiresRoles(options));
  tls::TlsServerCredentialsOptions tls_options(std::move(files));
  tls_options.watch_root_certs();
  tls_options.watch_identity_key_cert_pairs();
  tls_options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = tls::TlsServerCredentials(tls_options);
  credentials->SetAuthMetadataProcessor(
      std::make_shared<RoleCheck>(std::move(roles), required));
  return credentials;
}

// Holds a server to its address and to its role, in the handshake: before
// anything is sent.
class ServerCheck : public tls::ExternalCertificateVerifier {
 public:
  ServerCheck(std::string role, bool required)
      : role_(std::move(role)), required_(required) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> done,
              grpc::Status* status) override {
    if (!address_.Verify(request, std::move(done), status)) return false;
    if (!status->ok()) return true;
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names()) {
      uris.emplace_back(uri.data(), uri.size());
    }
    const Status fits = CheckServerRole(role_, RolesOf(uris), required_);
    const auto target = request->target_name();
    if (!fits.ok()) {
      refused_.Write(LogLevel::kWarning,
                     std::string_view(target.data(), target.size()), ": ",
                     Message(fits));
    }
    *status = ToGrpc(fits);
    return true;
  }
  // Nothing waits.
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string role_;
  const bool required_;
  tls::HostNameCertificateVerifier address_;
  LogLimit refused_{5, std::chrono::seconds(10)};
};

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const TransportOptions& options, std::string_view server_role) {
  if (!options.tls()) return grpc::InsecureChannelCredentials();
  SLUICE_ASSIGN_OR_RETURN(auto files, Watched(options));
  tls::TlsChannelCredentialsOptions tls_options;
  tls_options.set_certificate_provider(std::move(files));
  tls_options.watch_root_certs();
  tls_options.watch_identity_key_cert_pairs();
  if (!server_role.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const bool required, RequiresRoles(options));
    tls_options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<ServerCheck>(
            std::string(server_role), required));
  }
  return tls::TlsCredentials(tls_options);
}

// gRPC ends its callback threads with the last channel or server, and waits for
// them. A stream's last reference is often dropped on such a thread, which
// would then wait for itself. So one channel without a server is kept for the
// life of the process; its one call makes it use the threads.
struct CallbackThreads {
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments());
  grpc::GenericStub stub{channel};
  grpc::ClientContext context;
  // Empty but valid: a default ByteBuffer is no message at all.
  grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1};
  grpc::ByteBuffer response;

  static void Keep() {
    static std::once_flag once;
    std::call_once(once, [] {
      auto* threads = new CallbackThreads();
      threads->stub.UnaryCall(&threads->context, "/none/None", {},
                              &threads->request, &threads->response,
                              [](grpc::Status) {});
      kept.store(threads);  // and never freed
    });
  }
  // Atomic, so that the compiler keeps it and leak checkers find it.
  static inline std::atomic<CallbackThreads*> kept{nullptr};
};

// Limits what one peer may take of a server, above all before its hello.
void LimitPeers(const TransportOptions& options, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kServerLookahead);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxConcurrentStreams);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeMs);
  grpc::ResourceQuota quota("peers");
  quota.Resize(static_cast<size_t>(
      std::max(kMinServerMemory, kServerMessages * options.max_message_bytes)));
  builder->SetResourceQuota(quota);
}

// Linking gRPC's library adds reflection to every server, as a plugin of the
// builder. This option removes it.
class NoReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

std::string WithPort(const std::string& address, int port) {
  if (address.starts_with("unix:")) return address;
  return Cat(address.substr(0, address.rfind(':') + 1), port);
}

}  // namespace

StatusOr<ListeningServer> Listen(const std::string& address,
                                 const TransportOptions& options,
                                 const std::vector<grpc::Service*>& services,
                                 MethodRoles roles) {
  SLUICE_RETURN_IF_ERROR(CheckAddress(address, options));
  SLUICE_ASSIGN_OR_RETURN(auto credentials,
                          ServerCredentialsFor(options, std::move(roles)));
  SLUICE_ASSIGN_OR_RETURN(ListenLock lock, ListenLock::Take(address));
  CallbackThreads::Keep();
  TakeGrpcLog();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (!options.reflection) {
    builder.SetOption(std::make_unique<NoReflection>());
  }
  for (const auto& [name, value] : CommonArguments(options)) {
    builder.AddChannelArgument(name, value);
  }
  LimitPeers(options, &builder);
  // A second process on the same port is an error.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Reflection uses the sync API.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  int port = 0;
  builder.AddListeningPort(address, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto health = std::make_unique<HealthService>();
  builder.RegisterService(health.get());
  builder.SetOption(
      std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(
          health->Interface()));
  ListeningServer listening;
  listening.lock = std::move(lock);
  listening.health = std::move(health);
  BindPrivately([&] { listening.server = builder.BuildAndStart(); });
  if (listening.server == nullptr || port == 0) {
    return Unavailable("cannot listen on ", address, ": the address is in use",
                       options.tls() ? ", not ours, or the TLS files are bad"
                                     : " or not ours");
  }
  listening.address = WithPort(address, port);
  listening.server->GetHealthCheckService()->SetServingStatus("liveness", true);
  SetReady(*listening.server, false);
  return listening;
}

void SetReady(grpc::Server& server, bool ready) {
  auto* health = server.GetHealthCheckService();
  health->SetServingStatus("startup", ready);
  health->SetServingStatus("readiness", ready);
}

StatusOr<std::shared_ptr<grpc::Channel>> Connect(
    const std::string& address, const TransportOptions& options,
    std::string_view server_role) {
  SLUICE_RETURN_IF_ERROR(CheckAddress(address, options));
  SLUICE_ASSIGN_OR_RETURN(auto credentials,
                          ChannelCredentialsFor(options, server_role));
  CallbackThreads::Keep();
  TakeGrpcLog();
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : CommonArguments(options)) {
    arguments.SetInt(name, value);
  }
  arguments.SetInt(
      GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
      static_cast<int>(std::min(kMaxLookahead, 2 * options.max_message_bytes)));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // In gRPC this is also the time limit of one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   std::max(1000, Milliseconds(options.peer_timeout) / 2));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace sluice::rpc
