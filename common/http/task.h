#ifndef SLUICE_COMMON_HTTP_TASK_H_
#define SLUICE_COMMON_HTTP_TASK_H_

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

#include "common/http/loop_executor.h"

namespace sluice::http {

using TaskExecutor = LoopExecutor<boost::asio::io_context::executor_type>;

// A coroutine of an event loop.
template <typename T>
using Task = boost::asio::awaitable<T, TaskExecutor>;

// Returns a completion token that stores an error in `error` and throws none.
inline auto Redirect(boost::system::error_code& error) {
  return boost::asio::redirect_error(
      boost::asio::use_awaitable_t<TaskExecutor>(), error);
}

// Begins `task` on `loop`, an executor of an io_context; `on_end(thrown)` runs
// there at its end.
template <typename OnEnd>
void Spawn(const boost::asio::any_io_executor& loop, Task<void> task,
           OnEnd on_end) {
  auto& io = static_cast<boost::asio::io_context&>(
      boost::asio::query(loop, boost::asio::execution::context));
  boost::asio::co_spawn(TaskExecutor(io.get_executor()), std::move(task),
                        std::move(on_end));
}

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_TASK_H_
