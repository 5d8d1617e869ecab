#ifndef SLUICE_COMMON_STANDBY_REPEAT_ORDER_H_
#define SLUICE_COMMON_STANDBY_REPEAT_ORDER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>

namespace sluice::standby {

// The order in which requests that were lost with their server are sent again,
// and which request is not: it may be why the server ended.
//
// A request without an event of an answer is a suspect from its first loss on:
// it is sent once more, after the requests that are no suspects, and ends with
// the next server. Plain suspects go together; if a server ends with several of
// them, each goes alone. All other suspects go alone.
//
// A request with events is innocent of its first loss, and goes on at once. A
// plain one does so after each loss that left it further than the loss before,
// else it goes on alone once more. One that is not plain goes on alone after
// its second loss, until its end, and ends with its third.
//
// Threadless, without a clock.
class RepeatOrder {
 public:
  // A request, by an address that is its own from its first loss to OnEnded.
  using Id = const void*;
  enum class Verdict {
    kRepeat,  // sent again, once MayGo says so
    kEnd,     // never again
  };
  struct Loss {
    bool is_plain = true;     // it asks for no grammar, schema or tools
    bool has_events = false;  // its client has events of an answer
    bool is_further = false;  // more events than when it was sent
  };

  // A server was lost with the request.
  Verdict OnLost(Id id, const Loss& loss);
  // Whether the request may be sent now; true for one that was never lost.
  // `spares`: a loss would end the requests that go on by now; a suspect that
  // goes alone waits for their end.
  bool MayGo(Id id, bool spares = false) const;
  // The request is sent; OnReturned: but no server took it.
  void OnSent(Id id);
  void OnReturned(Id id);
  // An event of its answer has come. True: others may go now.
  bool OnEvent(Id id);
  // The request is answered, refused or left by its client. True: as above.
  bool OnEnded(Id id);

  // The servers that were lost with the request.
  int losses(Id id) const;

 private:
  struct Entry {
    int losses = 0;
    uint64_t place = 0;  // of its first loss, among all
    bool is_suspect = false;
    bool goes_alone = false;  // a suspect
    bool until_end = false;   // no event clears the suspect
    bool is_sent = false;     // since the latest loss
    bool is_open = false;     // no event has come since the latest loss
    // The suspects that went together with it, itself among them.
    std::shared_ptr<int> company = nullptr;
  };
  using Place = std::tuple<int, uint64_t, Id>;

  static Place PlaceOf(Id id, const Entry& entry) {
    return {entry.losses, entry.place, id};
  }
  // Adds the entry to the counts below, or takes it out of them.
  void Count(Id id, const Entry& entry, int change);
  static void Suspect(Entry& entry, bool goes_alone, bool until_end);
  static Verdict Judge(Entry& entry, const Loss& loss);

  std::unordered_map<Id, Entry> entries_;
  uint64_t places_ = 0;
  int innocent_ = 0;
  int open_ = 0;              // innocent, and without an event since their loss
  int waiting_together_ = 0;  // plain suspects that are not sent
  int sent_together_ = 0;
  int sent_alone_ = 0;
  std::set<Place> line_;          // suspects that go alone, and are not sent
  std::shared_ptr<int> company_;  // of the suspects that go together now
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_REPEAT_ORDER_H_
