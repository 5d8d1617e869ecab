#ifndef SLUICE_COMMON_RPC_HELLO_H_
#define SLUICE_COMMON_RPC_HELLO_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "common/base/status.h"

// A stream's hello travels in its call's metadata, before any message: gRPC
// takes in the whole of a message that is being read, however large it says
// that it is, and judges its size afterwards. So a server reads none before
// it has judged the peer.
namespace sluice::rpc {

// Bytes of a call's metadata that a server takes.
inline constexpr int kMaxMetadataBytes = 64 << 10;

// Bytes of a hello within them.
inline constexpr size_t kMaxHelloBytes = 60 << 10;

// Puts a serialised message into the call that `context` begins; nothing if
// it is empty.
void SetHello(const std::string& hello, grpc::ClientContext* context);

// The hello of the call; empty if there is none.
std::string HelloOf(const grpc::CallbackServerContext& context);

// Where the peer is, "ipv4:10.0.0.3:40000"; empty for a socket file, whose
// clients have no address.
std::string PeerOf(const grpc::CallbackServerContext& context);

// HelloOf as a message. INVALID_ARGUMENT if it is none, or not one;
// `what`: the stream.
template <typename Message>
StatusOr<Message> ParseHello(const std::string& hello, const char* what) {
  if (hello.empty()) {
    return InvalidArgument(what, " begins with a hello in its metadata, ",
                           "there is none");
  }
  Message message;
  if (message.ParseFromString(hello)) return message;
  return InvalidArgument(what, " begins with a hello, got ", hello.size(),
                         " bytes of something else");
}

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_HELLO_H_
