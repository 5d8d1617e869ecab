#ifndef SLUICE_COMMON_RPC_HELLO_H_
#define SLUICE_COMMON_RPC_HELLO_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "common/base/status.h"

// A stream's hello travels in its call's metadata, before any message. gRPC
// takes in the whole of a message that is read, of any announced size, and
// checks the size afterwards. So a server reads no message before it has
// accepted the peer.
namespace sluice::rpc {

// The most bytes of a call's metadata.
inline constexpr int kMaxMetadataBytes = 64 << 10;

// The most bytes of a hello within them.
inline constexpr size_t kMaxHelloBytes = 60 << 10;

// Puts a serialised message into the call that `context` begins; does nothing
// for an empty one.
void SetHello(const std::string& hello, grpc::ClientContext* context);

// Returns the hello of the call; empty if there is none.
std::string HelloOf(const grpc::CallbackServerContext& context);

// Returns the peer's address, "ipv4:10.0.0.3:40000"; empty for a socket file,
// whose clients have no address.
std::string PeerOf(const grpc::CallbackServerContext& context);

// Returns HelloOf as a message. INVALID_ARGUMENT if there is none, or it cannot
// be parsed. `what`: the stream.
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
