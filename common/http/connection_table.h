#ifndef SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_
#define SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/mutex.h"

namespace sluice::http {

// The server's connections, over all loops. When all places are taken, the
// table closes a connection for a newcomer: first one that has its last answer,
// then the one that is idle longest (of a client above its share, if there is
// such a client), or the oldest half request of the client with the most of
// these, if they are more than all idle ones. So a client that sends requests
// in halves loses its own first, however many addresses do so. A newcomer whose
// client is above its share gets room from that client's own connections alone.
// A connection whose request was read whole is never closed. Any thread.
class ConnectionTable {
 public:
  enum class Activity {
    kIdle,       // between an answer and the next request's first byte
    kReading,    // a request is not there whole, its first byte included
    kAnswering,  // never closed to make room
    kDone,       // the last answer, and what the client sends beyond it
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
  // Whether so many connections are told to close and are still open that the
  // next newcomer may get no place. It passes within moments.
  bool IsBehind() {
    MutexLock lock(mutex_);
    return leaving_.size() >= size_t{kMaxLeaving};
  }

 private:
  struct Entry;
  using Entries = std::list<Entry>;  // in the order of their activity's begin
  struct Client {
    std::string name;
    int connections = 0;  // those that are told to close included
    Entries reading;
  };
  struct Entry {
    Client* client;
    Entries* list;   // that it is in
    uint64_t since;  // of its activity: a later one is greater
    std::function<void()> close;
  };
  // A connection in a list, or the list's end.
  struct Choice {
    Entries* list;
    Entries::iterator entry;
  };

  // The closing of the connection that makes room for `newcomer`; empty if
  // none can.
  std::function<void()> MakeRoom(Client& newcomer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Choice Choose(Client& newcomer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client with the most half requests, of several the one with the oldest;
  // null if there is no half request.
  Client* LargestReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entries& ListOf(Client& client, Activity activity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Taken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOverShare(const Client& client) const {
    return client.connections > client_share_;
  }
  void Move(Entries::iterator entry, Entries& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Client& Join(std::string name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Client& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int limit_;
  const int client_share_;
  Mutex mutex_;
  uint64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;
  Entries idle_ ABSL_GUARDED_BY(mutex_);
  Entries answering_ ABSL_GUARDED_BY(mutex_);  // and those just begun
  Entries done_ ABSL_GUARDED_BY(mutex_);
  Entries leaving_ ABSL_GUARDED_BY(mutex_);  // told to close
  std::unordered_map<std::string, Client> clients_ ABSL_GUARDED_BY(mutex_);
  size_t reading_ ABSL_GUARDED_BY(mutex_) = 0;  // of all clients
};

class ConnectionTable::Place {
 public:
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // From now on `close` may be called, by any thread, to make room: it closes
  // the connection unless a request is being answered by then. Begins as
  // reading.
  void Open(std::function<void()> close);
  void Set(Activity activity);
  // From now on the connection is one of the client at `address`.
  void SetAddress(std::string_view address);

 private:
  friend class ConnectionTable;
  Place(ConnectionTable& table, Entries::iterator entry)
      : table_(table), entry_(entry) {}

  ConnectionTable& table_;
  const Entries::iterator entry_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_TABLE_H_
