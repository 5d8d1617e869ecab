#ifndef SLUICE_COMMON_PIPELINE_STAGE_BLOCKS_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_BLOCKS_STREAM_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/pipeline/stage/kv_source.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/hello.h"
#include "common/rpc/server_stream.h"
#include "common/wire/stage.h"

namespace sluice {

// Blocks' handler: gives what a KvSource has, one response per request.
class BlocksStream
    : public rpc::ServerStream<v1::BlocksRequest, v1::BlocksResponse> {
 public:
  BlocksStream(rpc::ServerStreamOptions options,
               std::shared_ptr<StageSession> session)
      : ServerStream(std::move(options)), session_(std::move(session)) {}

 private:
  Status OnHello(const std::string& bytes) override {
    SLUICE_ASSIGN_OR_RETURN(const v1::BlocksHello hello,
                            rpc::ParseHello<v1::BlocksHello>(bytes, "Blocks"));
    SLUICE_ASSIGN_OR_RETURN(source_, session_->OnBlocks(hello));
    return OkStatus();
  }

  void OnMessage(v1::BlocksRequest&) override {
    // A reader may have the answer whose write is not reported yet.
    if (unsent_.fetch_add(1) > wire::kMaxBlocksAsked) {
      return End(ResourceExhausted("more than ", wire::kMaxBlocksAsked,
                                   " requests without an answer"));
    }
    // The one that answers goes on.
    if (asked_.fetch_add(1) == 0) Answer();
  }

  void OnSent() override { --unsent_; }

  void Answer() {
    auto self = std::static_pointer_cast<BlocksStream>(shared_from_this());
    source_->Next([self](StatusOr<std::vector<KvEntry>> entries) {
      self->Give(std::move(entries));
    });
  }

  void Give(StatusOr<std::vector<KvEntry>> entries) {
    if (!entries.ok()) return End(entries.status());
    v1::BlocksResponse response;
    for (KvEntry& entry : *entries) {
      *response.add_entries() = wire::ToProto(std::move(entry));
    }
    if (!Send(std::move(response))) {
      return End(ResourceExhausted("more than ", wire::kMaxBlocksAsked,
                                   " answers wait to be read"));
    }
    if (asked_.fetch_sub(1) > 1) Answer();
  }

  const std::shared_ptr<StageSession> session_;
  std::shared_ptr<KvSource> source_;  // since OnHello
  std::atomic<int> asked_{0};         // and no answer is queued
  std::atomic<int> unsent_{0};        // asked, and no answer is written
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_BLOCKS_STREAM_H_
