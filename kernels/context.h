#ifndef SLUICE_KERNELS_CONTEXT_H_
#define SLUICE_KERNELS_CONTEXT_H_

#include <cstdint>
#include <type_traits>

namespace sluice::kernels {

// Instruction sets with code of their own. All give the same bits.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kNeon };

const char* ToString(Isa isa);

// The fastest set that this CPU supports.
Isa DetectIsa();
// Whether this CPU has `isa`.
bool HasIsa(Isa isa);

// A team of threads that run the same function on different task indices.
class Executor {
 public:
  using Task = void (*)(void* argument, int task);

  virtual ~Executor() = default;
  virtual int num_threads() const = 0;
  // Calls task(argument, i) for i in [0, num_tasks), spread over the team,
  // and returns when all have returned. Not reentrant; one caller at a time.
  virtual void Run(Task task, void* argument, int num_tasks) = 0;
};

// The first argument of every kernel. Kernels keep no state between calls.
struct Context {
  Executor* executor = nullptr;  // null: the calling thread alone
  Isa isa = Isa::kPortable;      // one that HasIsa()
};

// Runs body(i) for i in [0, num_tasks) on the context's team.
template <typename Body>
void ParallelFor(const Context& context, int num_tasks, Body&& body) {
  if (context.executor == nullptr || num_tasks == 1) {
    for (int i = 0; i < num_tasks; ++i) body(i);
    return;
  }
  using Plain = std::remove_reference_t<Body>;
  context.executor->Run(
      [](void* argument, int task) { (*static_cast<Plain*>(argument))(task); },
      const_cast<void*>(static_cast<const void*>(&body)), num_tasks);
}

inline int NumThreads(const Context& context) {
  return context.executor == nullptr ? 1 : context.executor->num_threads();
}

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_CONTEXT_H_
