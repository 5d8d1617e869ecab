#include "common/text/vocabulary.h"

#include <cstring>

#include "common/text/bridge/bridge.h"

namespace sluice {
namespace {

// Takes a uint32 off the front of `table`; false for a short table.
bool TakeUint32(std::string_view& table, uint32_t& value) {
  if (table.size() < sizeof(value)) return false;
  std::memcpy(&value, table.data(), sizeof(value));
  table.remove_prefix(sizeof(value));
  return true;
}

Status Short() { return Internal("text bridge: short vocabulary table"); }

}  // namespace

StatusOr<Vocabulary> Vocabulary::Parse(std::string_view table) {
  Vocabulary made;
  uint32_t join = 0;
  uint32_t count = 0;
  if (!TakeUint32(table, join) || !TakeUint32(table, count)) return Short();
  made.join_with_space_ = (join & SLUICE_JOIN_WITH_SPACE) != 0;
  made.strip_leading_space_ = (join & SLUICE_STRIP_LEADING_SPACE) != 0;
  made.entries_.reserve(count);
  made.ids_.reserve(count);
  made.text_.reserve(table.size());
  for (uint32_t id = 0; id < count; ++id) {
    Entry entry;
    if (!TakeUint32(table, entry.flags) ||
        !TakeUint32(table, entry.name_size) ||
        !TakeUint32(table, entry.bytes_size)) {
      return Short();
    }
    const size_t size = size_t{entry.name_size} + entry.bytes_size;
    if (table.size() < size) return Short();
    entry.name = made.text_.size();
    made.text_.append(table.substr(0, size));
    const auto token = static_cast<TokenId>(id);
    if ((entry.flags & SLUICE_TOKEN_EXISTS) != 0) {
      made.ids_.emplace(table.substr(0, entry.name_size), token);
    }
    if ((entry.flags & SLUICE_TOKEN_SPECIAL) != 0) {
      made.special_ids_.push_back(token);
    }
    table.remove_prefix(size);
    made.entries_.push_back(entry);
  }
  return made;
}

const Vocabulary::Entry* Vocabulary::At(TokenId id) const {
  if (id < 0 || id >= size()) return nullptr;
  return &entries_[static_cast<size_t>(id)];
}

bool Vocabulary::Contains(TokenId id) const {
  const Entry* entry = At(id);
  return entry != nullptr && (entry->flags & SLUICE_TOKEN_EXISTS) != 0;
}

bool Vocabulary::IsSpecial(TokenId id) const {
  const Entry* entry = At(id);
  return entry != nullptr && (entry->flags & SLUICE_TOKEN_SPECIAL) != 0;
}

std::string_view Vocabulary::Name(TokenId id) const {
  const Entry* entry = At(id);
  if (entry == nullptr) return {};
  return std::string_view(text_).substr(entry->name, entry->name_size);
}

std::string_view Vocabulary::Bytes(TokenId id) const {
  const Entry* entry = At(id);
  if (entry == nullptr) return {};
  return std::string_view(text_).substr(entry->name + entry->name_size,
                                        entry->bytes_size);
}

std::optional<TokenId> Vocabulary::Find(std::string_view name) const {
  const auto found = ids_.find(std::string(name));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace sluice
