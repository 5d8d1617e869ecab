#ifndef SLUICE_COMMON_HTTP_LOOP_EXECUTOR_H_
#define SLUICE_COMMON_HTTP_LOOP_EXECUTOR_H_

#include <array>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace sluice::http {

// Room for work that an event loop found no memory to post: a service of its
// io_context. Used on the loop's thread alone, and without locks.
class LoopReserve : public boost::asio::execution_context::service {
 public:
  using key_type = LoopReserve;
  static inline boost::asio::execution_context::id id;

  static constexpr size_t kWorkBytes = 64;

  // Whether a work of this type can be kept.
  template <typename Work>
  static constexpr bool kFits = sizeof(Work) <= kWorkBytes &&
                                alignof(Work) <= alignof(std::max_align_t);

  explicit LoopReserve(boost::asio::execution_context& context)
      : service(context) {}
  ~LoopReserve() override { shutdown(); }

  static LoopReserve& Of(boost::asio::execution_context& context) {
    return boost::asio::use_service<LoopReserve>(context);
  }

  // Keeps `work` for the next Run. Throws std::bad_alloc where all is taken.
  template <typename Work>
  void Keep(Work work) {
    static_assert(kFits<Work>);
    if (size_ == kept_.size()) throw std::bad_alloc();
    Kept& kept = kept_[size_];
    new (kept.bytes.data()) Work(std::move(work));
    ++size_;
    kept.end = [](std::byte* bytes, bool runs) {
      auto* const place = std::launder(reinterpret_cast<Work*>(bytes));
      Work taken = std::move(*place);
      place->~Work();
      if (runs) taken();
    };
  }

  // Runs what is kept, between two events. An exception drops its work alone.
  void Run() { EndAll(/*runs=*/true); }

 private:
  // More than the coroutines that an event ends, which are those of one
  // connection, of a client or to a server.
  static constexpr size_t kMostKept = 256;

  struct Kept {
    alignas(std::max_align_t) std::array<std::byte, kWorkBytes> bytes;
    void (*end)(std::byte* bytes, bool runs);
  };

  void shutdown() override { EndAll(/*runs=*/false); }
  void EndAll(bool runs) {
    while (next_ < size_) {
      Kept& kept = kept_[next_++];
      kept.end(kept.bytes.data(), runs);
    }
    next_ = size_ = 0;
  }

  size_t next_ = 0;  // of those that Run has not begun
  size_t size_ = 0;
  std::array<Kept, kMostKept> kept_;
};

// The executor of the coroutines of an event loop: `Inner`, an executor of an
// io_context, and the loop's LoopReserve for small work that finds no memory. A
// coroutine whose operation finds no memory is ended by work that Asio posts
// from a destructor: an exception there would end the process.
template <typename Inner>
class LoopExecutor {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): as Asio's own are.
  LoopExecutor(Inner inner) noexcept : inner_(std::move(inner)) {}

  template <typename Property>
  requires boost::asio::can_query<const Inner&, Property>::value decltype(auto)
  query(const Property& property) const {
    return boost::asio::query(inner_, property);
  }

  template <typename Property>
  requires boost::asio::can_require<const Inner&, Property>::value auto require(
      const Property& property) const {
    using Required =
        std::decay_t<decltype(boost::asio::require(inner_, property))>;
    return LoopExecutor<Required>(boost::asio::require(inner_, property));
  }

  template <typename Function>
  void execute(Function&& function) const {
    using Work = std::decay_t<Function>;
    if constexpr (LoopReserve::kFits<Work>) {
      Work work(std::forward<Function>(function));
      try {
        // Takes memory before it moves from `work`.
        inner_.execute(std::move(work));
      } catch (const std::bad_alloc&) {
        LoopReserve::Of(inner_.context()).Keep(std::move(work));
      }
    } else {
      inner_.execute(std::forward<Function>(function));
    }
  }

  friend bool operator==(const LoopExecutor& a,
                         const LoopExecutor& b) noexcept {
    return a.inner_ == b.inner_;
  }
  friend bool operator!=(const LoopExecutor& a,
                         const LoopExecutor& b) noexcept {
    return !(a == b);
  }

 private:
  Inner inner_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_LOOP_EXECUTOR_H_
