// What one hop between two stages costs, and where the time goes:
//
//   write   the plan's head is serialised, the payload is not copied
//   wire    StartWrite to the receiver's reaction: gRPC, the socket, a wake
//   read    the frame is taken apart (the one copy) and checked
//   wake    the receiver's loop thread takes it from its queue
//
// Both ends are in this process, over loopback TCP, so that one clock stamps
// all. The CPU's flags and its read bandwidth come first.
// With slice_kb the hidden states come in frames of so many KiB, one behind the
// other, which are copied into place as they come: "wire" ends with the last
// one. Usage: hop_bench [hidden_size] [rounds] [slice_kb]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/concurrency/bounded_queue.h"
#include "common/rpc/credited_sender.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/transport.h"
#include "common/tools/measure/machine.h"
#include "common/wire/stage.h"
#include "common/wire/types.h"
#include "sluice/v1/stage.grpc.pb.h"

namespace sluice {
namespace {

struct Received {
  StepPlan plan;
  HiddenStates hidden;
  int64_t arrived_ns = 0;
  int64_t queued_ns = 0;
};

// Frames on their way, at most: a step is sent when the one before is here.
constexpr size_t kFrames = 4096;

PlanLimits Limits() {
  PlanLimits limits;
  limits.max_step_tokens = 8192;
  limits.max_sequences = 256;
  limits.max_context = 8192;
  limits.num_blocks = 1 << 16;
  limits.vocab_size = 1 << 17;
  return limits;
}

class Receiver : public rpc::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Receiver(int32_t hidden_size, BoundedQueue<Received>* queue)
      : ServerStream({"Steps"}), hidden_size_(hidden_size), queue_(*queue) {}

 private:
  Status OnHello(const std::string&) override {
    Send(rpc::JoinPayload(v1::StepAck(), 0, Buffer()));
    return OkStatus();
  }
  void OnMessage(grpc::ByteBuffer& frame) override {
    const int64_t arrived = MonotonicNanos();
    auto split =
        rpc::SplitPayload(frame, wire::kHiddenStatesField, frame.Length());
    SLUICE_CHECK(split.ok());
    auto head = rpc::ParseHead<v1::StepFrame>(split->head);
    SLUICE_CHECK(head.ok());
    if (head->has_step()) {
      auto plan =
          wire::FromProto(head->step().header(), head->step().plan(), Limits());
      SLUICE_CHECK(plan.ok());
      received_.plan = *std::move(plan);
      bytes_ = sizeof(float) * received_.plan.num_tokens() * hidden_size_;
    }
    Take(std::move(split->payload));
    if (at_ == bytes_) {
      auto hidden = wire::HiddenFromPayload(
          std::move(hidden_), received_.plan.num_tokens(), hidden_size_);
      SLUICE_CHECK(hidden.ok());
      received_.hidden = *std::move(hidden);
      received_.arrived_ns = arrived;
      received_.queued_ns = MonotonicNanos();
      SLUICE_CHECK(queue_.Push(std::exchange(received_, {})).ok());
      at_ = 0;
    }
    Send(rpc::JoinPayload(v1::StepAck(), 0, Buffer()));
  }

  // Puts a slice of the step behind the others.
  void Take(Buffer slice) {
    if (slice.size() == bytes_) {
      hidden_ = std::move(slice);
      at_ = bytes_;
      return;
    }
    if (at_ == 0) hidden_ = MessageBuffer(bytes_);
    SLUICE_CHECK(slice.size() <= bytes_ - at_);
    std::memcpy(hidden_.data() + at_, slice.data(), slice.size());
    at_ += slice.size();
  }

  const int32_t hidden_size_;
  BoundedQueue<Received>& queue_;
  Received received_;  // a step whose slices are not all here
  Buffer hidden_;
  size_t bytes_ = 0;  // of the step's hidden states
  size_t at_ = 0;     // of those that are here
};

class Service
    : public v1::Stage::WithRawCallbackMethod_Steps<v1::Stage::Service> {
 public:
  Service(int32_t hidden_size, BoundedQueue<Received>* queue)
      : hidden_size_(hidden_size), queue_(queue) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Steps(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<Receiver>(hidden_size_, queue_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

 private:
  const int32_t hidden_size_;
  BoundedQueue<Received>* const queue_;
};

// `tokens` of one sequence: a prefill chunk, or a decode of one.
StepPlan PlanOf(int32_t tokens, uint64_t step) {
  StepPlan plan;
  plan.epoch = Epoch(1);
  plan.step_id = StepId(step);
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.tokens.assign(static_cast<size_t>(tokens), 1000);
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  plan.chunks = {chunk};
  return plan;
}

struct Options {
  int32_t hidden_size = 2048;
  int rounds = 2000;
  size_t slice = std::numeric_limits<size_t>::max();  // bytes of a frame
};

struct Part {
  const char* name;
  std::vector<double> micros;
};

void Print(const char* what, std::vector<double> micros) {
  std::sort(micros.begin(), micros.end());
  std::printf("  %-6s p50 %9.1f us   p99 %9.1f us\n", what,
              micros[micros.size() / 2], micros[micros.size() * 99 / 100]);
}

// Returns the hidden states of a step, in slices of at most `slice` bytes.
std::vector<Buffer> Slices(size_t bytes, size_t slice) {
  std::vector<Buffer> slices;
  for (size_t at = 0; at < bytes; at += slice) {
    Buffer& one =
        slices.emplace_back(std::min(slice, bytes - at), Buffer::Kept::kPass);
    std::memset(one.data(), 0, one.size());
  }
  return slices;
}

std::vector<grpc::ByteBuffer> Frames(v1::StepFrame head,
                                     std::vector<Buffer> slices) {
  std::vector<grpc::ByteBuffer> frames;
  for (Buffer& slice : slices) {
    frames.push_back(
        rpc::JoinPayload(head, wire::kHiddenStatesField, std::move(slice)));
    head.Clear();
  }
  return frames;
}

void Run(rpc::CreditedSender& sender, BoundedQueue<Received>& queue,
         int32_t tokens, const Options& options) {
  Part parts[] = {
      {"write", {}}, {"wire", {}}, {"read", {}}, {"wake", {}}, {"all", {}}};
  const int rounds =
      tokens == 1 ? options.rounds : std::max(10, options.rounds / 10);
  const int warm_up = rounds / 10;
  const size_t bytes = sizeof(float) * tokens * options.hidden_size;
  for (int round = -warm_up; round < rounds; ++round) {
    std::vector<Buffer> slices = Slices(bytes, options.slice);
    const StepPlan plan =
        PlanOf(tokens, static_cast<uint64_t>(round + warm_up));
    const int64_t begin = MonotonicNanos();
    std::vector<grpc::ByteBuffer> frames =
        Frames(wire::StepFrameHead(plan, begin), std::move(slices));
    const int64_t written = MonotonicNanos();
    for (grpc::ByteBuffer& frame : frames) {
      SLUICE_CHECK(sender.SendFrame(std::move(frame)).ok());
    }
    const auto received = queue.Pop();
    const int64_t end = MonotonicNanos();
    if (round < 0) continue;
    const int64_t nanos[] = {written - begin, received->arrived_ns - written,
                             received->queued_ns - received->arrived_ns,
                             end - received->queued_ns, end - begin};
    for (size_t i = 0; i < std::size(parts); ++i) {
      parts[i].micros.push_back(static_cast<double>(nanos[i]) / 1000);
    }
  }
  std::printf("%d x %d F32, %.0f KB, %d rounds\n", tokens, options.hidden_size,
              static_cast<double>(bytes) / 1024, rounds);
  for (const Part& part : parts) Print(part.name, part.micros);
}

int Main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.hidden_size = std::atoi(argv[1]);
  if (argc > 2) options.rounds = std::atoi(argv[2]);
  const int slice_kb = argc > 3 ? std::atoi(argv[3]) : 1;
  if (argc > 3) options.slice = static_cast<size_t>(slice_kb) << 10;
  if (options.hidden_size < 1 || options.rounds < 10 || slice_kb < 1) {
    std::fprintf(stderr,
                 "usage: hop_bench [hidden_size] [rounds >= 10] [slice_kb]\n");
    return 2;
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%s%s", measure::DescribeCpu().c_str(),
              measure::ReadProbe(std::max(cores, 1)).Describe(5).c_str());
  BoundedQueue<Received> queue(64);
  Service service(options.hidden_size, &queue);
  rpc::TransportOptions transport;
  transport.max_message_bytes =
      wire::MaxFrameBytes(Limits(), options.hidden_size);
  auto server = rpc::Listen("127.0.0.1:0", transport, &service);
  SLUICE_CHECK(server.ok());
  auto channel = rpc::Connect(server->address, transport);
  SLUICE_CHECK(channel.ok());
  auto sender = rpc::CreditedSender::Open(
      {*channel, "/sluice.v1.Stage/Steps", "hello", kFrames, kFrames},
      {[] {}, [](const grpc::ByteBuffer&) {}, [](const Status&) {}});
  Run(*sender, queue, 1, options);
  Run(*sender, queue, 512, options);
  sender->Cancel(Cancelled("done"));
  server->server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
