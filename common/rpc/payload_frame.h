#ifndef SLUICE_COMMON_RPC_PAYLOAD_FRAME_H_
#define SLUICE_COMMON_RPC_PAYLOAD_FRAME_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

// A protobuf message whose one large `bytes` field travels beside the rest: the
// wire has plain protobuf, but the payload is not copied into or out of a
// message object.
namespace sluice::rpc {

// Returns `head`, which has no payload, and behind it field `field` with
// `payload`, sent from its own memory. An empty payload is left out.
grpc::ByteBuffer JoinPayload(const google::protobuf::MessageLite& head,
                             int field, Buffer payload);

// Appends `tail` to `frame`. Readers merge it into the message: its fields
// replace those of the frame, and lists are joined.
void AppendMessage(const google::protobuf::MessageLite& tail,
                   grpc::ByteBuffer* frame);

struct SplitFrame {
  std::string head;  // the message without the payload, serialised
  Buffer payload;    // one copy, made here
};

// Splits a message, wherever the field stands in it. INVALID_ARGUMENT if it is
// not protobuf, has groups, or more than `max_head` bytes beside the payload.
// `field` 0: there is no payload, all of the message is head.
StatusOr<SplitFrame> SplitPayload(const grpc::ByteBuffer& frame, int field,
                                  size_t max_head);

// Returns a message without such a field, as an object. Errors as
// SplitPayload's.
template <typename Message>
StatusOr<Message> ParseHead(const std::string& head) {
  Message message;
  if (!message.ParseFromString(head)) {
    return InvalidArgument("frame of ", head.size(),
                           " bytes is not a valid message");
  }
  return message;
}

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_PAYLOAD_FRAME_H_
