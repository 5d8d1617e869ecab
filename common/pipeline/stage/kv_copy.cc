#include "common/pipeline/stage/kv_copy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "common/rpc/client_stream.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// So that the donor reads while this stage writes.
constexpr int kAskedAhead = 4;

// A copy without a byte for so long, or one that takes so long, is not waited
// for: clients are. The second is less than a gateway waits.
constexpr Duration kMostSilence = std::chrono::seconds(2);
constexpr Duration kMostCopy = std::chrono::seconds(20);

}  // namespace

// A stream of Blocks from one donor.
class BlocksLink
    : public rpc::ClientStream<v1::BlocksRequest, v1::BlocksResponse> {
 public:
  BlocksLink(std::shared_ptr<grpc::Channel> channel,
             std::shared_ptr<KvCopy> copy, const KvDonors::Donor& donor,
             size_t most_bytes)
      : ClientStream(std::move(channel), "/sluice.v1.Stage/Blocks",
                     wire::kMaxBlocksAsked),
        copy_(std::move(copy)),
        donor_(donor),
        most_bytes_(most_bytes) {}

  // Asks for one more response.
  void Ask() {
    ++asked_;
    Send({});
  }

 private:
  void OnMessage(v1::BlocksResponse& message) override {
    auto self = std::static_pointer_cast<BlocksLink>(shared_from_this());
    if (asked_.fetch_sub(1) <= 0) {
      asked_ = 0;
      return Cancel(InvalidArgument("a response that was not asked for"));
    }
    if (is_whole_) return;
    if (message.entries_size() == 0) {
      is_whole_ = true;
      HalfClose();
      return copy_->Write({}, donor_.layers, [self] { self->copy_->Next(); });
    }
    auto entries = Parse(message);
    if (!entries.ok()) return Cancel(entries.status());
    copy_->Write(*std::move(entries), donor_.layers, [self] { self->Ask(); });
  }

  StatusOr<std::vector<KvEntry>> Parse(v1::BlocksResponse& message) const {
    std::vector<KvEntry> entries;
    size_t bytes = 0;
    for (v1::KvEntry& proto : *message.mutable_entries()) {
      SLUICE_ASSIGN_OR_RETURN(KvEntry entry, wire::FromProto(std::move(proto)));
      bytes += entry.data.size();
      if (entry.data.empty() || bytes > most_bytes_) {
        return InvalidArgument("entry ", entries.size(), " has ",
                               entry.data.size(), " bytes, the response ",
                               bytes, " so far, limit [1, ", most_bytes_, "]");
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  void OnEnd(const Status& status) override {
    if (is_whole_) return;
    copy_->End(status.ok() ? Unavailable(donor_.address, " ended the stream")
                           : Annotate(status, donor_.address));
  }

  const std::shared_ptr<KvCopy> copy_;
  const KvDonors::Donor donor_;
  const size_t most_bytes_;    // of a response's entries
  std::atomic<int> asked_{0};  // responses to come
  bool is_whole_ = false;      // gRPC reads one message at a time
};

KvCopy::KvCopy(Target target, KvDonors donors, Done done)
    : target_(std::move(target)),
      donors_(std::move(donors)),
      done_(std::move(done)) {}

void KvCopy::Cancel() {
  std::shared_ptr<BlocksLink> link;
  {
    MutexLock lock(mutex_);
    done_ = nullptr;
    link = std::move(link_);
  }
  if (link != nullptr) link->Cancel(Cancelled("the epoch is over"));
}

void KvCopy::Watch(TimePoint now) {
  TimePoint moved;
  {
    MutexLock lock(mutex_);
    moved = moved_;
  }
  if (now - begun_ >= kMostCopy) {
    End(DeadlineExceeded("not copied within ", Seconds(kMostCopy), " s"));
  } else if (now - moved >= kMostSilence) {
    End(DeadlineExceeded("no bytes for ", Seconds(now - moved), " s, limit ",
                         Seconds(kMostSilence)));
  }
}

bool KvCopy::ended() const {
  MutexLock lock(mutex_);
  return done_ == nullptr;
}

void KvCopy::End(const Status& status) {
  Done done;
  std::shared_ptr<BlocksLink> link;
  KvCopied copied{status};
  {
    MutexLock lock(mutex_);
    done = std::exchange(done_, nullptr);
    link = std::move(link_);
    copied.bytes = bytes_;
  }
  if (link != nullptr && !status.ok()) link->Cancel(status);
  if (done != nullptr) done(copied);
}

void KvCopy::Next() {
  size_t at = 0;
  {
    MutexLock lock(mutex_);
    at = next_++;
    moved_ = Clock::now();
  }
  if (at == donors_.donors.size()) return End(OkStatus());
  const KvDonors::Donor& donor = donors_.donors[at];
  if (!donor.address.empty()) {
    return Between([self = shared_from_this(), &donor](const KvStore& store) {
      self->Open(donor, store.most_bytes());
      return OkStatus();
    });
  }
  if (target_.shelf == nullptr) {
    return End(
        FailedPrecondition("this stage has no shelf of epoch ", donors_.epoch));
  }
  const Status has = CheckLayers(target_.shelf->place(), donor.layers);
  if (!has.ok()) return End(has);
  ReadShelf(MakeKvSource(target_.shelf, donor.layers), donor.layers);
}

void KvCopy::ReadShelf(const std::shared_ptr<KvSource>& source,
                       const StagePlace& layers) {
  source->Next([self = shared_from_this(), source,
                layers](StatusOr<std::vector<KvEntry>> entries) {
    if (!entries.ok()) return self->End(entries.status());
    const bool is_whole = entries->empty();
    self->Write(*std::move(entries), layers, [self, source, layers, is_whole] {
      is_whole ? self->Next() : self->ReadShelf(source, layers);
    });
  });
}

std::string KvCopy::HelloTo(const KvDonors::Donor& donor) const {
  v1::BlocksHello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  wire::SetEpoch(donors_.epoch, &hello);
  hello.set_secret(donors_.secret);
  hello.set_model_digest(target_.identity.model_digest);
  hello.set_numerics(target_.identity.numerics);
  hello.set_ranks(target_.identity.ranks);
  hello.set_block_tokens(kBlockTokens);
  hello.set_first_layer(donor.layers.first_layer);
  hello.set_last_layer(donor.layers.last_layer);
  return hello.SerializeAsString();
}

void KvCopy::Open(const KvDonors::Donor& donor, size_t most_bytes) {
  const size_t most = wire::kBlocksBytes + most_bytes;
  rpc::TransportOptions transport = target_.transport;
  // Names and checksums are less than the entries' bytes.
  transport.max_message_bytes =
      std::min(static_cast<int64_t>(2 * most), wire::kMaxBlocksBytes);
  auto channel = rpc::Connect(donor.address, transport, rpc::kStageRole);
  if (!channel.ok()) return End(channel.status());
  const auto link = std::make_shared<BlocksLink>(
      *std::move(channel), shared_from_this(), donor, most);
  {
    MutexLock lock(mutex_);
    if (done_ == nullptr) return;
    link_ = link;
    link->Open(HelloTo(donor));  // before Cancel sees it
  }
  for (int i = 0; i < kAskedAhead; ++i) link->Ask();
}

void KvCopy::Write(std::vector<KvEntry> entries, const StagePlace& layers,
                   std::function<void()> then) {
  const auto run =
      std::make_shared<const std::vector<KvEntry>>(std::move(entries));
  Between([self = shared_from_this(), run, layers, then](KvStore& store) {
    SLUICE_RETURN_IF_ERROR(self->WriteNow(*run, layers, store));
    then();
    return OkStatus();
  });
}

void KvCopy::Between(std::function<Status(KvStore& store)> work) {
  const auto alive = target_.owner.lock();
  const bool comes =
      alive != nullptr &&
      target_.links->Between([self = shared_from_this(), work](KvStore* store) {
        if (self->ended()) return;
        const Status status =
            store != nullptr
                ? work(*store)
                : FailedPrecondition(
                      "the keys and values of this stage cannot be copied: its "
                      "layers go, or its ranks are of several processes or "
                      "GPUs");
        if (!status.ok()) self->End(status);
      });
  if (!comes) End(Unavailable("this stage has no layers now"));
}

Status KvCopy::WriteNow(const std::vector<KvEntry>& entries,
                        const StagePlace& layers, KvStore& store) {
  uint64_t bytes = 0;
  for (const KvEntry& entry : entries) {
    const int32_t layer = entry.name.layer;
    if (layer < layers.first_layer || layer >= layers.last_layer) {
      return FailedPrecondition(
          "a block of layer ", layer, ": the donor was asked for layers ",
          layers.first_layer, " to ", layers.last_layer - 1);
    }
    SLUICE_RETURN_IF_ERROR(store.Write(entry));
    bytes += entry.data.size();
  }
  MutexLock lock(mutex_);
  bytes_ += bytes;
  moved_ = Clock::now();
  return OkStatus();
}

}  // namespace sluice
