// A copy of keys and values from donors that do not keep to the protocol.
#include "common/pipeline/stage/kv_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/concurrency/named_thread.h"
#include "common/rpc/hello.h"
#include "common/rpc/server_stream.h"
#include "common/wire/types.h"
#include "sluice/v1/stage.grpc.pb.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using ::testing::HasSubstr;

constexpr size_t kEntryBytes = 256;

v1::KvEntry Entry(int32_t layer, size_t bytes = kEntryBytes) {
  return wire::ToProto(
      KvEntry{{layer, 0, BlockId(1)}, std::string(bytes, 'k'), 7});
}

v1::BlocksResponse Response(std::vector<v1::KvEntry> entries) {
  v1::BlocksResponse response;
  for (v1::KvEntry& entry : entries) *response.add_entries() = std::move(entry);
  return response;
}

// Sends its responses one per request, and then nothing.
struct DonorScript {
  std::vector<v1::BlocksResponse> responses;
  int at_once = 1;  // so many for the first request
};

class DonorStream
    : public rpc::ServerStream<v1::BlocksRequest, v1::BlocksResponse> {
 public:
  explicit DonorStream(const DonorScript& script)
      : ServerStream({"Blocks", nullptr, 64}), script_(script) {}

 private:
  Status OnHello(const std::string& bytes) override {
    return rpc::ParseHello<v1::BlocksHello>(bytes, "Blocks").status();
  }
  void OnMessage(v1::BlocksRequest&) override {
    const size_t until = next_ + (next_ == 0 ? script_.at_once : 1);
    for (; next_ < until && next_ < script_.responses.size(); ++next_) {
      Send(script_.responses[next_]);
    }
  }

  const DonorScript& script_;
  size_t next_ = 0;
};

class DonorService
    : public v1::Stage::WithCallbackMethod_Blocks<v1::Stage::Service> {
 public:
  explicit DonorService(DonorScript script) : script_(std::move(script)) {}

 private:
  grpc::ServerBidiReactor<v1::BlocksRequest, v1::BlocksResponse>* Blocks(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<DonorStream>(script_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  const DonorScript script_;
};

// Notes the layers of what is written.
class NotingStore : public KvStore {
 public:
  std::vector<KvName> Written(const StagePlace&) const override { return {}; }
  size_t BytesOf(const KvName&) const override { return kEntryBytes; }
  size_t most_bytes() const override { return kEntryBytes; }
  uint64_t shelf_room() const override { return 0; }
  StatusOr<KvEntry> Read(const KvName&) const override {
    return FailedPrecondition("nothing is read here");
  }
  Status Write(const KvEntry& entry) override {
    layers.push_back(entry.name.layer);
    return OkStatus();
  }
  std::vector<int32_t> layers;
};

// Does work on its own thread.
class WorkRunner : public StepRunner {
 public:
  WorkRunner() : thread_("work", [this] { Run(); }) {}
  ~WorkRunner() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    thread_.Join();
  }
  Status Push(StepInput) override { return OkStatus(); }
  void Reset(Epoch) override {}
  void OnSampled(const StepResult&) override {}
  StageLoopStats Stats() const override { return {}; }
  bool Between(KvWork work) override {
    {
      MutexLock lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.NotifyAll();
    return true;
  }
  NotingStore store;  // the thread's, until the copy has ended

 private:
  void Run() {
    while (true) {
      KvWork work;
      {
        MutexLock lock(mutex_);
        while (!stopping_ && work_.empty()) changed_.Wait(mutex_);
        if (stopping_) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work(&store);
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<KvWork> work_ ABSL_GUARDED_BY(mutex_);
  NamedThread thread_;
};

class KvCopyTest : public ::testing::Test {
 protected:
  KvCopyTest()
      : links_(std::make_shared<EpochLinks>(StageSessionOptions(),
                                            EpochLinks::Events())) {
    links_->SetLoaded(FakeInfo(0, 1), &runner_);
  }
  // Begins to copy layers 0 and 1 from a donor with that script.
  void Begin(DonorScript script) {
    StopDonor();
    service_ = std::make_unique<DonorService>(std::move(script));
    auto server = rpc::Listen("127.0.0.1:0", {}, service_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    KvDonors donors;
    donors.donors = {{server_.address, {0, 2}}};
    donors.epoch = Epoch(1, 5);
    Begin(std::move(donors), nullptr);
  }
  void Begin(KvDonors donors, std::shared_ptr<const KvShelf> shelf) {
    KvCopy::Target target;
    target.links = links_.get();
    target.owner = links_;
    target.identity = FakeInfo(0, 1);
    target.shelf = std::move(shelf);
    copy_ = std::make_shared<KvCopy>(std::move(target), std::move(donors),
                                     [this](const KvCopied& copied) {
                                       MutexLock lock(mutex_);
                                       copied_ = copied;
                                     });
    copy_->Start();
  }
  KvCopied Copied() {
    EXPECT_TRUE(Eventually([this] {
      MutexLock lock(mutex_);
      return copied_.has_value();
    }));
    MutexLock lock(mutex_);
    return copied_.value_or(KvCopied{Unavailable("never")});
  }
  void StopDonor() {
    if (server_.server == nullptr) return;
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server.reset();
  }
  void TearDown() override {
    copy_->Cancel();
    StopDonor();
  }

  WorkRunner runner_;
  const std::shared_ptr<EpochLinks> links_;
  std::unique_ptr<DonorService> service_;
  rpc::ListeningServer server_;
  Mutex mutex_;
  std::optional<KvCopied> copied_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<KvCopy> copy_;
};

TEST_F(KvCopyTest, AllThatADonorGivesIsWritten) {
  Begin({{Response({Entry(0), Entry(1)}), Response({Entry(1)}), Response({}),
          Response({})}});
  const KvCopied copied = Copied();
  EXPECT_TRUE(copied.status.ok()) << copied.status;
  EXPECT_EQ(copied.bytes, 3 * kEntryBytes);
  EXPECT_EQ(runner_.store.layers, (std::vector<int32_t>{0, 1, 1}));
}

TEST_F(KvCopyTest, ALayerThatWasNotAskedForIsRefused) {
  Begin({{Response({Entry(0), Entry(2)}), Response({})}});
  EXPECT_THAT(Message(Copied().status),
              HasSubstr("a block of layer 2: the donor was asked for layers 0 "
                        "to 1"));
}

TEST_F(KvCopyTest, ResponsesThatWereNotAskedForAreRefused) {
  DonorScript script;
  script.responses.assign(40, Response({Entry(0)}));
  script.at_once = 40;
  Begin(std::move(script));
  EXPECT_THAT(Message(Copied().status), HasSubstr("not asked for"));
}

TEST_F(KvCopyTest, AnEntryWithoutBytesIsRefused) {
  Begin({{Response({Entry(0, 0)})}});
  EXPECT_THAT(Message(Copied().status), HasSubstr("entry 0 has 0 bytes"));
}

TEST_F(KvCopyTest, AResponseAboveTheLimitIsRefused) {
  Begin({{Response({Entry(0, wire::kBlocksBytes + kEntryBytes + 1)})}});
  EXPECT_THAT(Message(Copied().status), HasSubstr("limit [1, 1048832]"));
}

TEST_F(KvCopyTest, ADonorThatSendsNothingIsNotWaitedFor) {
  Begin(DonorScript());
  copy_->Watch(Clock::now() + std::chrono::seconds(3));
  EXPECT_EQ(Copied().status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(KvCopyTest, ACopyMayBeCancelledAtAnyMoment) {
  Begin({{Response({Entry(0)}), Response({})}});
  copy_->Cancel();
  Begin({{Response({Entry(0)}), Response({})}});
  EXPECT_TRUE(Copied().status.ok());
}

TEST_F(KvCopyTest, AShelfWithoutTheLayersIsRefused) {
  KvDonors donors;
  donors.donors = {{"", {0, 2}}};
  donors.epoch = Epoch(1, 5);
  Begin(std::move(donors), std::make_shared<const KvShelf>(
                               StagePlace{1, 2}, std::vector<KvEntry>()));
  EXPECT_THAT(Message(Copied().status),
              HasSubstr("layers 0 to 1: this stage has layers 1 to 1"));
}

}  // namespace
}  // namespace sluice
