#ifndef SLUICE_COMMON_PIPELINE_RANKS_FOLLOW_STREAM_H_
#define SLUICE_COMMON_PIPELINE_RANKS_FOLLOW_STREAM_H_

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <utility>

#include "common/pipeline/ranks/lead_ranks.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Follow's handler: parses a follower's frames and hands them to the lead.
class FollowStream
    : public rpc::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `peer`: the follower's address; may be empty.
  FollowStream(rpc::ServerStreamOptions options,
               std::shared_ptr<LeadRanks> lead, std::string peer)
      : ServerStream(std::move(options)),
        lead_(std::move(lead)),
        peer_(std::move(peer)) {}

 private:
  Status OnHello(const std::string& hello) override;
  void OnMessage(grpc::ByteBuffer& frame) override;
  void OnEnd(const Status& status) override;
  Status OnFrame(const grpc::ByteBuffer& frame);

  const std::shared_ptr<LeadRanks> lead_;
  const std::string peer_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_FOLLOW_STREAM_H_
