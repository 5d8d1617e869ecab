// Loaded before Debian's gRPC, which is not instrumented, in tests under
// ThreadSanitizer (LD_PRELOAD): tells it what gRPC orders by locks that it does
// not see. What a thread did before it handed gRPC a batch or a closure happens
// before the callback or the event that tells of its end; what ended calls did
// happens before their server is destroyed. Nothing else is ordered here. For
// gRPC 1.51, which Debian 12 has.
#include <dlfcn.h>
#include <elf.h>
#include <grpc/grpc.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

// Absent in programs without ThreadSanitizer that a test starts.
extern "C" __attribute__((weak)) void __tsan_acquire(void* address);
extern "C" __attribute__((weak)) void __tsan_release(void* address);

namespace {

void Acquire(void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(address);
}

void Release(void* address) {
  if (__tsan_release != nullptr) __tsan_release(address);
}

using Functor = grpc_completion_queue_functor;
using Run = void (*)(Functor*, int);

// gRPC has two such functions in each of its libraries and in the program.
constexpr size_t kMaxRuns = 16;
std::atomic<Run> g_runs[kMaxRuns];

char g_ended_calls;  // its address stands for them

template <size_t index>
void RunAfter(Functor* functor, int ok) {
  Acquire(functor);
  g_runs[index].load()(functor, ok);
}

template <size_t... index>
Run Wrapper(size_t wanted, std::index_sequence<index...>) {
  static constexpr Run kWrappers[] = {&RunAfter<index>...};
  return kWrappers[wanted];
}

Run WrapperOf(size_t index) {
  return Wrapper(index, std::make_index_sequence<kMaxRuns>());
}

// Tags that are no functors begin with the address of a table, not of code.
bool IsCode(Run run) {
  struct Search {
    uintptr_t address;
    bool found;
  } search{reinterpret_cast<uintptr_t>(run), false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
              wanted.address >= begin &&
              wanted.address < begin + part.p_memsz) {
            wanted.found = true;
          }
        }
        return wanted.found ? 1 : 0;
      },
      &search);
  return search.found;
}

void Wrap(Functor* functor) {
  const Run run = functor->functor_run;
  for (size_t i = 0; i < kMaxRuns; ++i) {
    if (run == WrapperOf(i)) return;
    Run known = g_runs[i].load();
    if (known == nullptr) {
      if (!IsCode(run)) return;
      if (g_runs[i].compare_exchange_strong(known, run)) known = run;
    }
    if (known == run) {
      functor->functor_run = WrapperOf(i);
      return;
    }
  }
}

// gRPC 1.51's grpc_closure, as far as it is of use here. An absl::Status is
// passed by its address.
struct Closure {
  void* next;
  void (*run)(void* argument, void* error);
  void* argument;
};

// What a closure was before it was handed to gRPC's executor.
struct Handed {
  Closure* closure;
  Closure before;
};

void RunHanded(void* argument, void* error) {
  auto* const handed = static_cast<Handed*>(argument);
  Closure* const closure = handed->closure;
  Acquire(closure);
  closure->run = handed->before.run;
  closure->argument = handed->before.argument;
  delete handed;
  closure->run(closure->argument, error);
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call,
                                                 const grpc_op* ops,
                                                 size_t num_ops, void* tag,
                                                 void* reserved) {
  static auto* const next =
      Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  if (tag != nullptr) {
    Wrap(static_cast<Functor*>(tag));
    Release(tag);
  }
  return next(call, ops, num_ops, tag, reserved);
}

// grpc_core::Executor::Run, on whose threads OnDone and OnCancel are called.
extern "C" void
_ZN9grpc_core8Executor3RunEP12grpc_closureN4absl7debian36StatusENS_12ExecutorTypeENS_15ExecutorJobTypeE(
    Closure* closure, void* error, int executor, int job) {
  static auto* const next = Next<void(Closure*, void*, int, int)>(
      "_ZN9grpc_core8Executor3RunEP12grpc_closureN4absl7debian36StatusENS_"
      "12ExecutorTypeENS_15ExecutorJobTypeE");
  auto* const handed = new Handed{closure, *closure};
  closure->run = RunHanded;
  closure->argument = handed;
  Release(closure);
  next(closure, error, executor, job);
}

// grpc::internal::ServerCallbackCall::ScheduleOnDone. The last of several
// threads that let go of a call calls it; how many are left is counted behind
// another count and the virtual table.
extern "C" void _ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb(
    char* call, bool inlined) {
  static auto* const next = Next<void(char*, bool)>(
      "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  Acquire(call + sizeof(void*) + sizeof(int));
  next(call, inlined);
}

extern "C" void grpc_call_unref(grpc_call* call) {
  static auto* const next = Next<decltype(grpc_call_unref)>("grpc_call_unref");
  Release(&g_ended_calls);
  next(call);
}

extern "C" void grpc_server_destroy(grpc_server* server) {
  static auto* const next =
      Next<decltype(grpc_server_destroy)>("grpc_server_destroy");
  next(server);
  Acquire(&g_ended_calls);
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline,
                                                 void* reserved) {
  static auto* const next =
      Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) Acquire(event.tag);
  return event;
}

extern "C" grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue,
                                                  void* tag,
                                                  gpr_timespec deadline,
                                                  void* reserved) {
  static auto* const next = Next<decltype(grpc_completion_queue_pluck)>(
      "grpc_completion_queue_pluck");
  const grpc_event event = next(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) Acquire(event.tag);
  return event;
}
