#include "common/pipeline/ranks/follow_stream.h"

#include "common/pipeline/ranks/rank_frames.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"

namespace sluice {

Status FollowStream::OnHello(const std::string& bytes) {
  SLUICE_ASSIGN_OR_RETURN(const auto proto,
                          rpc::ParseHello<v1::FollowerHello>(bytes, "Follow"));
  auto self = std::static_pointer_cast<FollowStream>(shared_from_this());
  return lead_->OnHello(proto, peer_, std::move(self));
}

void FollowStream::OnMessage(grpc::ByteBuffer& frame) {
  const Status status = OnFrame(frame);
  frame.Clear();
  if (!status.ok()) End(status);
}

void FollowStream::OnEnd(const Status& status) { lead_->OnEnd(this, status); }

Status FollowStream::OnFrame(const grpc::ByteBuffer& frame) {
  SLUICE_ASSIGN_OR_RETURN(const rpc::SplitFrame split,
                          rpc::SplitPayload(frame, 0, kMaxFollowerFrameBytes));
  SLUICE_ASSIGN_OR_RETURN(const auto parsed,
                          rpc::ParseHead<v1::FollowerFrame>(split.head));
  return lead_->OnFrame(this, parsed);
}

}  // namespace sluice
