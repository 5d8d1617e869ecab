#ifndef SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_
#define SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/mutex.h"

namespace sluice::http {

// The server's connections, over all loops. When all are taken, the table
// closes one for another client: the connection idle longest, first of a client
// above its share; else, of a client above its share, the one whose request has
// been read longest. A client at its share gets room from its own idle
// connections alone. A connection whose request is being answered is never
// closed. Any thread.
class ConnectionTable {
 public:
  enum class Activity {
    kIdle,       // no byte of a request yet, or after the last answer
    kReading,    // a request's header or body
    kAnswering,  // neither is closed to make room
  };

  // Connections that are told to close and are still open. Beyond this number
  // the loops are behind, and closing more would not help.
  static constexpr int kMaxLeaving = 64;

  // A connection's place, free again when it is destroyed. The table outlives
  // it. Its methods are for one thread at a time.
  class Place;

  // `limit` connections, and `client_share` of one client when all are taken.
  ConnectionTable(int limit, int client_share)
      : limit_(limit), client_share_(client_share) {}

  // A place for a connection from `address`; null if there is none. What makes
  // room for it may take a moment: meanwhile there are up to 64 more.
  std::unique_ptr<Place> Take(std::string_view address);

 private:
  struct Client {
    std::string name;
    int connections = 0;  // the leaving ones included
  };
  struct Entry;
  using Entries = std::list<Entry>;  // in the order of their activity's begin
  struct Entry {
    Client& client;
    Entries* list;  // that it is in
    std::function<void()> close;
  };

  // The closing of the connection that makes room for `newcomer`; empty if
  // none can.
  std::function<void()> MakeRoom(const Client& newcomer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entries& ListOf(Activity activity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOverShare(const Client& client) const {
    return client.connections > client_share_;
  }
  void Move(Entries::iterator entry, Entries& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Client& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int limit_;
  const int client_share_;
  Mutex mutex_;
  Entries idle_ ABSL_GUARDED_BY(mutex_);
  Entries reading_ ABSL_GUARDED_BY(mutex_);
  Entries answering_ ABSL_GUARDED_BY(mutex_);  // and those just begun
  Entries leaving_ ABSL_GUARDED_BY(mutex_);    // told to close
  std::unordered_map<std::string, Client> clients_ ABSL_GUARDED_BY(mutex_);
};

class ConnectionTable::Place {
 public:
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // From now on `close` may be called, by any thread, to make room: it closes
  // the connection unless a request is being answered by then. Begins as idle.
  void Open(std::function<void()> close);
  void Set(Activity activity);

 private:
  friend class ConnectionTable;
  Place(ConnectionTable& table, Entries::iterator entry)
      : table_(table), entry_(entry) {}

  ConnectionTable& table_;
  const Entries::iterator entry_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_
