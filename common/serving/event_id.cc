#include "common/serving/event_id.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/http/message.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

constexpr char kOwnId = 'a';
constexpr char kClientsId = 'b';
constexpr char kProgressMark = '~';
constexpr char kEnded = 'f';
constexpr std::string_view kUsage = "u";

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr int kDigitBits = 6;
constexpr int kCreatedBits = 36;
constexpr int kSeedBits = 64;

// An id of ours: hexadecimal digits, packed by two into bytes and by a word's
// worth into our digits.
constexpr size_t kOwnIdLength = 24;
constexpr size_t kHexPerWord = 12;
constexpr int kHexBits = 4;
constexpr int kWordBits = kHexBits * static_cast<int>(kHexPerWord);

// The counts of a choice behind its content, in the order of their text.
struct Count {
  char letter;
  uint64_t ChoiceProgress::*value;
};
constexpr Count kCounts[] = {
    {'r', &ChoiceProgress::reasoning}, {'k', &ChoiceProgress::calls},
    {'a', &ChoiceProgress::arguments}, {'e', &ChoiceProgress::entries},
    {'m', &ChoiceProgress::marks},     {'n', &ChoiceProgress::events}};
constexpr size_t kMaxCountDigits = 12;

constexpr size_t NumDigits(int bits) {
  return static_cast<size_t>((bits + kDigitBits - 1) / kDigitBits);
}

void AppendBits(uint64_t value, int bits, std::string& out) {
  for (int at = static_cast<int>(NumDigits(bits)) - 1; at >= 0; --at) {
    out += kDigits[(value >> (kDigitBits * at)) % kDigits.size()];
  }
}

// Takes a number of `bits` bits off the front of `text`; nothing if none is
// there.
std::optional<uint64_t> TakeBits(std::string_view& text, int bits) {
  const size_t digits = NumDigits(bits);
  if (text.size() < digits) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    const int spare = static_cast<int>(digits) * kDigitBits - bits;
    if (i == 0 && (digit >> (kDigitBits - spare)) != 0) return std::nullopt;
    value = (value << kDigitBits) | digit;
  }
  text.remove_prefix(digits);
  return value;
}

bool IsOurForm(std::string_view id) {
  return id.size() == kOwnIdLength &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void AppendOwnId(std::string_view id, std::string& out) {
  for (size_t at = 0; at < kOwnIdLength; at += kHexPerWord) {
    uint64_t word = 0;
    std::from_chars(id.data() + at, id.data() + at + kHexPerWord, word, 16);
    AppendBits(word, kWordBits, out);
  }
}

std::optional<std::string> TakeOwnId(std::string_view& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string id;
  for (size_t at = 0; at < kOwnIdLength; at += kHexPerWord) {
    const auto word = TakeBits(text, kWordBits);
    if (!word) return std::nullopt;
    for (int shift = kWordBits - kHexBits; shift >= 0; shift -= kHexBits) {
      id += kHex[(*word >> shift) % kHex.size()];
    }
  }
  return id;
}

std::string CountsText(const ChoiceProgress& choice) {
  if (choice.ended) return std::string(1, kEnded);
  if (!choice.begun) return "";
  std::string text = std::to_string(choice.content);
  for (const Count& count : kCounts) {
    const uint64_t value = choice.*count.value;
    if (value == 0) continue;
    text += count.letter;
    text += std::to_string(value);
  }
  return text;
}

// Takes a count off the front of `text`: no zero in front, unless it is 0.
std::optional<uint64_t> TakeCount(std::string_view& text) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || digits > kMaxCountDigits ||
      (digits > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return value;
}

std::optional<ChoiceProgress> ReadChoice(std::string_view text) {
  ChoiceProgress choice;
  if (text.empty()) return choice;
  choice.begun = true;
  if (text.size() == 1 && text.front() == kEnded) {
    choice.ended = true;
    return choice;
  }
  const auto content = TakeCount(text);
  if (!content) return std::nullopt;
  choice.content = *content;
  for (const Count& count : kCounts) {
    if (text.empty() || text.front() != count.letter) continue;
    text.remove_prefix(1);
    const auto value = TakeCount(text);
    if (!value || *value == 0) return std::nullopt;
    choice.*count.value = *value;
  }
  // Arguments are a call's.
  if (!text.empty() || (choice.arguments > 0 && choice.calls == 0)) {
    return std::nullopt;
  }
  return choice;
}

std::optional<StreamProgress> ReadProgress(std::string_view text) {
  StreamProgress progress;
  while (true) {
    const size_t end = std::min(text.find('.'), text.size());
    const auto choice = ReadChoice(text.substr(0, end));
    if (!choice) return std::nullopt;
    progress.choices.push_back(*choice);
    if (end == text.size()) return progress;
    text.remove_prefix(end + 1);
    if (text != kUsage) continue;
    progress.usage = true;
    // Usage is told last.
    const bool ended =
        std::all_of(progress.choices.begin(), progress.choices.end(),
                    [](const ChoiceProgress& one) { return one.ended; });
    if (!ended) return std::nullopt;
    return progress;
  }
}

std::optional<EventId> ReadHead(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const char kind = text.front();
  text.remove_prefix(1);
  EventId id;
  id.origin.is_own_id = kind == kOwnId;
  const auto created = TakeBits(text, kCreatedBits);
  const auto seed = TakeBits(text, kSeedBits);
  const auto fingerprint = TakeBits(text, kFingerprintBits);
  if (!created || !seed || !fingerprint) return std::nullopt;
  id.origin.created = static_cast<int64_t>(*created);
  id.origin.seed = *seed;
  id.fingerprint = *fingerprint;
  if (kind == kOwnId) {
    auto own = TakeOwnId(text);
    if (!own || !text.empty()) return std::nullopt;
    id.origin.request_id = *std::move(own);
    return id;
  }
  if (kind != kClientsId || http::SanitizedRequestId(text) != text) {
    return std::nullopt;
  }
  id.origin.request_id = text;
  return id;
}

}  // namespace

bool StreamProgress::is_whole(bool has_usage) const {
  return (usage || !has_usage) &&
         std::all_of(choices.begin(), choices.end(),
                     [](const ChoiceProgress& choice) { return choice.ended; });
}

std::string EventIdHead(const AnswerOrigin& origin, uint64_t fingerprint) {
  const bool packed = origin.is_own_id && IsOurForm(origin.request_id);
  std::string head(1, packed ? kOwnId : kClientsId);
  AppendBits(static_cast<uint64_t>(origin.created), kCreatedBits, head);
  AppendBits(origin.seed, kSeedBits, head);
  AppendBits(fingerprint, kFingerprintBits, head);
  if (packed) {
    AppendOwnId(origin.request_id, head);
  } else {
    head += origin.request_id;
  }
  return head;
}

std::string ProgressText(const StreamProgress& progress) {
  std::string text;
  for (const ChoiceProgress& choice : progress.choices) {
    text += CountsText(choice);
    text += '.';
  }
  if (progress.usage) return text += kUsage;
  if (!text.empty()) text.pop_back();
  return text;
}

Status EventIdError(std::string_view why) {
  return WithCode(FieldError("Last-Event-ID", why), "invalid_event_id");
}

StatusOr<EventId> ParseEventId(std::string_view text) {
  if (text.size() > kMaxEventIdBytes) {
    return EventIdError(
        Cat("has ", text.size(), " bytes, limit ", kMaxEventIdBytes));
  }
  const size_t mark = text.rfind(kProgressMark);
  if (mark == std::string_view::npos) {
    return EventIdError("is no id of an event of this server: it has no ~");
  }
  auto id = ReadHead(text.substr(0, mark));
  if (!id) {
    return EventIdError(
        "is no id of an event of this server: what comes before its ~ is "
        "malformed");
  }
  auto progress = ReadProgress(text.substr(mark + 1));
  if (!progress) {
    return EventIdError(
        "is no id of an event of this server: what follows its ~ is "
        "malformed");
  }
  id->progress = *std::move(progress);
  return *std::move(id);
}

EventIds::EventIds(std::string head, StreamProgress begin, bool usage_follows)
    : head_(std::move(head)),
      progress_(std::move(begin)),
      usage_follows_(usage_follows) {
  for (const ChoiceProgress& choice : progress_.choices) {
    texts_.push_back(CountsText(choice));
  }
}

std::string EventIds::After(int index, const ChoiceProgress& shown) {
  ChoiceProgress& choice = progress_.choices.at(static_cast<size_t>(index));
  choice.begun = true;
  choice.ended = choice.ended || shown.ended;
  choice.content += shown.content;
  choice.reasoning += shown.reasoning;
  choice.entries += shown.entries;
  choice.marks += shown.marks;
  choice.events += shown.events;
  if (shown.calls > 0) choice.arguments = 0;
  choice.calls += shown.calls;
  choice.arguments += shown.arguments;
  if (head_.empty()) return "";
  texts_[static_cast<size_t>(index)] = CountsText(choice);
  const bool all_ended =
      std::all_of(progress_.choices.begin(), progress_.choices.end(),
                  [](const ChoiceProgress& one) { return one.ended; });
  return usage_follows_ && all_ended ? "" : Text();
}

std::string EventIds::AfterUsage() {
  progress_.usage = true;
  return head_.empty() ? "" : Cat(Text(), ".", kUsage);
}

std::string EventIds::Again() const {
  if (head_.empty()) return "";
  return progress_.usage ? Cat(Text(), ".", kUsage) : Text();
}

std::string EventIds::Text() const {
  size_t bytes = head_.size() + texts_.size();
  for (const std::string& text : texts_) bytes += text.size();
  std::string id;
  id.reserve(bytes + 2);
  id += head_;
  for (size_t i = 0; i < texts_.size(); ++i) {
    id += i == 0 ? kProgressMark : '.';
    id += texts_[i];
  }
  return id;
}

}  // namespace sluice::serving
