#include "common/pipeline/ranks/ranks_service.h"

#include <utility>

#include "common/pipeline/ranks/follow_stream.h"
#include "common/rpc/hello.h"
#include "sluice/v1/ranks.grpc.pb.h"

namespace sluice {
namespace {

// Raw: steps are written without a protobuf object for their rows.
using RawRanks = v1::Ranks::WithRawCallbackMethod_Follow<v1::Ranks::Service>;

class RanksService : public RawRanks {
 public:
  RanksService(std::shared_ptr<LeadRanks> lead, rpc::RpcObserver* observer)
      : lead_(std::move(lead)), observer_(observer) {}

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Follow(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<FollowStream>(
        rpc::ServerStreamOptions{"Follow", observer_,
                                 LeadRanks::kMaxQueuedFrames},
        lead_, rpc::PeerOf(*context));
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  const std::shared_ptr<LeadRanks> lead_;
  rpc::RpcObserver* const observer_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRanksService(std::shared_ptr<LeadRanks> lead,
                                                rpc::RpcObserver* observer) {
  return std::make_unique<RanksService>(std::move(lead), observer);
}

rpc::MethodRoles RanksMethodRoles() {
  return {{"/sluice.v1.Ranks/Follow", {"stage"}}};
}

}  // namespace sluice
