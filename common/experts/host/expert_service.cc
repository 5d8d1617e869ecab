#include "common/experts/host/expert_service.h"

#include <utility>

#include "common/experts/host/batches_stream.h"
#include "common/rpc/hello.h"
#include "sluice/v1/expert.grpc.pb.h"

namespace sluice {
namespace {

// Raw: frames are parsed without a protobuf object.
using RawExpert =
    v1::Expert::WithRawCallbackMethod_Batches<v1::Expert::Service>;

// Answers that may wait for a slow reader: those of the batches in flight, and
// small ones.
constexpr size_t kMaxQueuedAnswers = 4096;

class ExpertService : public RawExpert {
 public:
  ExpertService(std::shared_ptr<ExpertSession> session,
                rpc::RpcObserver* observer)
      : session_(std::move(session)), observer_(observer) {}

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Batches(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<BatchesStream>(
        rpc::ServerStreamOptions{"Batches", observer_, kMaxQueuedAnswers},
        session_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  const std::shared_ptr<ExpertSession> session_;
  rpc::RpcObserver* const observer_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExpertService(
    std::shared_ptr<ExpertSession> session, rpc::RpcObserver* observer) {
  return std::make_unique<ExpertService>(std::move(session), observer);
}

rpc::MethodRoles ExpertMethodRoles() {
  return {{"/sluice.v1.Expert/Batches", {"stage"}}};
}

}  // namespace sluice
