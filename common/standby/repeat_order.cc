#include "common/standby/repeat_order.h"

namespace sluice::standby {

void RepeatOrder::Count(Id id, const Entry& entry, int change) {
  if (!entry.is_suspect) {
    innocent_ += change;
    if (entry.is_open) open_ += change;
  } else if (entry.is_sent) {
    (entry.goes_alone ? sent_alone_ : sent_together_) += change;
  } else if (!entry.goes_alone) {
    waiting_together_ += change;
  } else if (change > 0) {
    line_.insert(PlaceOf(id, entry));
  } else {
    line_.erase(PlaceOf(id, entry));
  }
}

void RepeatOrder::Suspect(Entry& entry, bool goes_alone, bool until_end) {
  entry.is_suspect = true;
  entry.goes_alone = goes_alone;
  entry.until_end = until_end;
}

RepeatOrder::Verdict RepeatOrder::Judge(Entry& entry, const Loss& loss) {
  const bool was_suspect = entry.is_suspect;
  const bool was_alone = was_suspect && (entry.goes_alone || !entry.company ||
                                         *entry.company == 1);
  if (loss.has_events && loss.is_plain && loss.is_further) {
    entry.is_suspect = false;  // each repeat brings it nearer to its end
    return Verdict::kRepeat;
  }
  if (was_alone) return Verdict::kEnd;
  if (loss.has_events && entry.losses == 1) return Verdict::kRepeat;
  Suspect(entry, /*goes_alone=*/!loss.is_plain || entry.losses > 1,
          /*until_end=*/loss.has_events && !loss.is_plain);
  return Verdict::kRepeat;
}

RepeatOrder::Verdict RepeatOrder::OnLost(Id id, const Loss& loss) {
  const auto [found, is_new] = entries_.try_emplace(id);
  Entry& entry = found->second;
  if (is_new) {
    entry.place = ++places_;
  } else {
    Count(id, entry, -1);
  }
  ++entry.losses;
  const Verdict verdict = Judge(entry, loss);
  entry.is_sent = false;
  entry.is_open = true;
  entry.company = nullptr;
  Count(id, entry, 1);
  return verdict;
}

bool RepeatOrder::MayGo(Id id, bool spares) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.is_suspect) return true;
  const Entry& entry = found->second;
  if (open_ > 0 || sent_alone_ > 0) return false;
  if (!entry.goes_alone) return true;
  return sent_together_ == 0 && waiting_together_ == 0 &&
         (!spares || innocent_ == 0) && *line_.begin() == PlaceOf(id, entry);
}

void RepeatOrder::OnSent(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  Count(id, entry, -1);
  if (entry.is_suspect && !entry.goes_alone) {
    if (sent_together_ == 0) company_ = std::make_shared<int>(0);
    entry.company = company_;
    ++*company_;
  }
  entry.is_sent = true;
  Count(id, entry, 1);
}

void RepeatOrder::OnReturned(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  Count(id, entry, -1);
  entry.is_sent = false;
  if (entry.company) --*entry.company;
  entry.company = nullptr;
  Count(id, entry, 1);
}

bool RepeatOrder::OnEvent(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  if (!entry.is_open) return false;
  Count(id, entry, -1);
  entry.is_open = false;
  if (!entry.until_end) entry.is_suspect = false;
  Count(id, entry, 1);
  return true;
}

bool RepeatOrder::OnEnded(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Count(id, found->second, -1);
  entries_.erase(found);
  return true;
}

int RepeatOrder::losses(Id id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? 0 : found->second.losses;
}

}  // namespace sluice::standby
