#ifndef SLUICE_COMMON_RPC_PAYLOAD_FRAME_H_
#define SLUICE_COMMON_RPC_PAYLOAD_FRAME_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

// A protobuf message whose one large `bytes` field travels beside the rest:
// what is on the wire is plain protobuf, but the payload is neither copied
// into a message object nor out of one.
namespace sluice::rpc {

// `head`, which has no payload, followed by field `field` with `payload`. The
// payload is sent from where it lies. An empty payload is left out.
grpc::ByteBuffer JoinPayload(const google::protobuf::MessageLite& head,
                             int field, Buffer payload);

// Puts `tail` behind `frame`. Readers merge it into the message: fields that
// both have are the tail's, and lists are joined.
void AppendMessage(const google::protobuf::MessageLite& tail,
                   grpc::ByteBuffer* frame);

struct SplitFrame {
  std::string head;  // the message without the payload, serialised
  Buffer payload;    // one copy, made here
};

// Takes a message apart, wherever in it the field stands. INVALID_ARGUMENT if
// it is not protobuf, has groups, or more than `max_head` bytes beside the
// payload.
StatusOr<SplitFrame> SplitPayload(const grpc::ByteBuffer& frame, int field,
                                  size_t max_head);

// SplitPayload of a message without such a field, as its text.
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
