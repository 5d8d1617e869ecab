#include "common/rpc/hello.h"

namespace sluice::rpc {
namespace {

constexpr char kHelloKey[] = "sluice-hello-bin";

}  // namespace

void SetHello(const std::string& hello, grpc::ClientContext* context) {
  if (!hello.empty()) context->AddMetadata(kHelloKey, hello);
}

std::string HelloOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kHelloKey);
  if (found == metadata.end()) return "";
  return std::string(found->second.data(), found->second.size());
}

std::string PeerOf(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  return peer.starts_with("unix:") ? "" : peer;
}

}  // namespace sluice::rpc
