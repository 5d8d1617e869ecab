#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "common/base/json.h"
#include "common/weights/extent.h"
#include "common/weights/model_contents.h"
#include "common/weights/safetensors_outline.h"

namespace sluice::weights {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = kMaxSafetensorsHeader;  // the reference's
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxDims = 8;
constexpr uint64_t kMaxShardBytes = uint64_t{1} << 62;
constexpr uint64_t kMaxOutlinedVector = uint64_t{1} << 20;

// A tensor's entry in the header, unchecked.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;  // begin and end, from the data's start
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// Takes the header's JSON event by event: linear in its length, keeps no tree,
// and sees duplicate keys, which a tree would hide.
class HeaderSax : public nlohmann::json_sax<Json> {
 public:
  std::vector<Entry> entries;
  std::string error;  // of the first event that was refused

  bool start_object(size_t) override {
    if (state_ == State::kStart) return Enter(State::kRoot);
    if (state_ == State::kRoot && !key_.empty()) {
      if (key_ == "__metadata__") return Enter(State::kMetadata);
      if (entries.size() >= kMaxTensors) {
        return Refuse(Cat("more than ", kMaxTensors, " tensors"));
      }
      entries.emplace_back().name = key_;
      return Enter(State::kEntry);
    }
    return Refuse(Cat("unexpected object at ", Where()));
  }
  bool key(string_t& key) override {
    key_ = key;
    if (state_ == State::kRoot) {
      if (key.empty()) return Refuse("empty tensor name");
      return names_.insert(key).second ||
             Refuse(Cat("tensor ", Quoted(key), " is listed twice"));
    }
    if (state_ == State::kEntry) {
      Entry& entry = entries.back();
      bool* seen = key == "dtype"          ? &entry.has_dtype
                   : key == "shape"        ? &entry.has_shape
                   : key == "data_offsets" ? &entry.has_offsets
                                           : nullptr;
      if (seen == nullptr) return Refuse(Cat("unknown key at ", Where()));
      if (*seen) return Refuse(Cat("duplicate key at ", Where()));
      *seen = true;
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::kRoot) return Enter(State::kEnd);
    return Enter(State::kRoot);
  }
  bool start_array(size_t) override {
    if (state_ == State::kEntry && key_ == "shape") {
      return Enter(State::kShape);
    }
    if (state_ == State::kEntry && key_ == "data_offsets") {
      return Enter(State::kOffsets);
    }
    return Refuse(Cat("unexpected array at ", Where()));
  }
  bool end_array() override { return Enter(State::kEntry); }
  bool string(string_t& text) override {
    if (state_ == State::kMetadata) return true;
    if (state_ == State::kEntry && key_ == "dtype") {
      entries.back().dtype = text;
      return true;
    }
    return Refuse(Cat("unexpected string at ", Where()));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      auto& shape = entries.back().shape;
      if (!std::in_range<int64_t>(value)) {
        return Refuse(Cat("dimension ", value, " above 2^63-1 at ", Where()));
      }
      if (shape.size() >= kMaxDims) {
        return Refuse(Cat("more than ", kMaxDims, " dimensions at ", Where()));
      }
      shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      auto& offsets = entries.back().offsets;
      if (offsets.size() >= 2) {
        return Refuse(Cat("more than two offsets at ", Where()));
      }
      offsets.push_back(value);
      return true;
    }
    return Refuse(Cat("unexpected number at ", Where()));
  }
  bool number_integer(number_integer_t value) override {
    return Refuse(Cat("negative number ", value, " at ", Where()));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Refuse(Cat("number ", Quoted(text), " is no integer at ", Where()));
  }
  bool null() override { return Refuse(Cat("unexpected null at ", Where())); }
  bool boolean(bool) override {
    return Refuse(Cat("unexpected boolean at ", Where()));
  }
  bool binary(binary_t&) override { return Refuse("unexpected binary"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Refuse(Cat("malformed JSON at byte ", position));
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool Enter(State state) {
    state_ = state;
    return true;
  }
  bool Refuse(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }
  std::string Where() const {
    if (state_ == State::kStart) return "the top";
    const bool in_entry = state_ == State::kEntry || state_ == State::kShape ||
                          state_ == State::kOffsets;
    if (state_ == State::kMetadata) {
      return Cat("key ", Quoted(key_), " of __metadata__");
    }
    if (!in_entry) return Cat("key ", Quoted(key_));
    return Cat("key ", Quoted(key_), " of tensor ",
               Quoted(entries.back().name));
  }

  State state_ = State::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;
};

// Where a shard's bytes of data are.
struct DataExtent {
  const std::string& path;
  uint64_t begin = 0;
  uint64_t end = 0;  // of the file
};

// Turns an entry into a tensor within `data`.
StatusOr<LocatedTensor> Locate(const DataExtent& data, Entry entry) {
  if (!entry.has_dtype || !entry.has_shape || entry.offsets.size() != 2) {
    return InvalidArgument("needs dtype, shape and two data_offsets");
  }
  LocatedTensor tensor;
  const uint64_t begin = entry.offsets[0];
  const uint64_t end = entry.offsets[1];
  tensor.info.dtype = DTypeOfSafetensors(entry.dtype);
  if (tensor.info.dtype == DType::kUnknown) {
    // The offsets alone tell its size. Only a model that needs it is refused.
    tensor.info.unknown_dtype = std::move(entry.dtype);
    entry.shape = {static_cast<int64_t>(
        std::min(end - std::min(begin, end), data.end - data.begin))};
  }
  SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes,
                          StoredBytes(tensor.info.dtype, entry.shape));
  if (begin > end || end > data.end - data.begin) {
    return InvalidArgument("data_offsets [", begin, ", ", end,
                           "] are not within the ", data.end - data.begin,
                           " bytes of data");
  }
  if (end - begin != bytes) {
    return InvalidArgument("data_offsets hold ", end - begin, " bytes, shape ",
                           ShapeToString(entry.shape), " of ",
                           tensor.info.dtype, " needs ", bytes);
  }
  tensor.info.name = std::move(entry.name);
  tensor.info.shape = std::move(entry.shape);
  tensor.offset = data.begin + begin;
  return tensor;
}

// Checks that every byte of data belongs to one tensor.
Status CheckContiguous(const DataExtent& data,
                       const std::vector<LocatedTensor>& tensors) {
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  for (const LocatedTensor& tensor : tensors) {
    extents.push_back({tensor.offset,
                       static_cast<uint64_t>(tensor.info.stored_bytes()),
                       tensor.info.name});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) {
              return std::pair(a.begin, a.size) < std::pair(b.begin, b.size);
            });
  uint64_t end = data.begin;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return InvalidArgument(data.path, ": tensor ", Quoted(extent.name),
                             " begins at byte ", extent.begin,
                             extent.begin < end
                                 ? ", overlapping the one"
                                 : ", after a hole behind the one",
                             " that ends at ", end);
    }
    end += extent.size;
  }
  if (end != data.end) {
    return InvalidArgument(data.path, ": tensors end at byte ", end,
                           ", the file at ", data.end);
  }
  return OkStatus();
}

// Returns the header's text, its length checked.
StatusOr<std::string> ReadHeaderText(const RandomAccessFile& file) {
  if (file.size() < kLengthBytes) {
    return InvalidArgument(file.path(), ": ", file.size(),
                           " bytes, too short for a safetensors file");
  }
  uint64_t length = 0;
  SLUICE_RETURN_IF_ERROR(file.ReadAt(0, kLengthBytes, &length));
  const uint64_t limit = std::min(kMaxHeaderBytes, file.size() - kLengthBytes);
  if (length > limit) {
    return InvalidArgument(file.path(), ": header of ", length,
                           " bytes, limit ", limit);
  }
  std::string text(length, '\0');
  SLUICE_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, length, text.data()));
  if (text.empty() || text[0] != '{') {
    return InvalidArgument(file.path(), ": header does not begin with '{'");
  }
  return text;
}

// Returns the tensors of a header, without their file. Behind an outline's
// header the end of the data is not known: `end` 0 takes the header's word.
StatusOr<std::vector<LocatedTensor>> ParseHeader(const std::string& path,
                                                 const std::string& text,
                                                 uint64_t end) {
  HeaderSax sax;
  if (!Json::sax_parse(text, &sax)) {
    return InvalidArgument(path, ": header: ", sax.error);
  }
  const uint64_t begin = kLengthBytes + text.size();
  if (end == 0) {
    uint64_t size = 0;
    for (const Entry& entry : sax.entries) {
      if (entry.offsets.size() == 2) size = std::max(size, entry.offsets[1]);
    }
    end = begin + std::min(size, kMaxShardBytes);
  }
  const DataExtent data{path, begin, end};
  std::vector<LocatedTensor> tensors;
  tensors.reserve(sax.entries.size());
  for (Entry& entry : sax.entries) {
    const std::string name = entry.name;
    auto tensor = Locate(data, std::move(entry));
    if (!tensor.ok()) {
      return Annotate(tensor.status(), path, ": tensor ", Quoted(name));
    }
    tensors.push_back(*std::move(tensor));
  }
  SLUICE_RETURN_IF_ERROR(CheckContiguous(data, tensors));
  return tensors;
}

// Returns how many of the tensor's first bytes an outline has.
uint64_t OutlinedBytes(const TensorInfo& tensor) {
  const auto bytes = static_cast<uint64_t>(tensor.stored_bytes());
  const uint64_t limit = tensor.shape.size() <= 1
                             ? kMaxOutlinedVector
                             : static_cast<uint64_t>(kIdentityBytes);
  return std::min(bytes, limit);
}

std::vector<LocatedTensor*> InOrderOfBytes(
    std::vector<LocatedTensor>& tensors) {
  std::vector<LocatedTensor*> order;
  order.reserve(tensors.size());
  for (LocatedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->info.stored_bytes()) <
           std::pair(b->offset, b->info.stored_bytes());
  });
  return order;
}

}  // namespace

StatusOr<std::vector<LocatedTensor>> ReadSafetensorsHeader(
    const RandomAccessFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(file));
  SLUICE_ASSIGN_OR_RETURN(auto tensors,
                          ParseHeader(file.path(), text, file.size()));
  for (LocatedTensor& tensor : tensors) tensor.file = &file;
  return tensors;
}

StatusOr<std::vector<LocatedTensor>> ReadSafetensorsOutline(
    const RandomAccessFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(file));
  SLUICE_ASSIGN_OR_RETURN(auto tensors, ParseHeader(file.path(), text, 0));
  uint64_t position = kLengthBytes + text.size();
  for (LocatedTensor* tensor : InOrderOfBytes(tensors)) {
    const uint64_t bytes = OutlinedBytes(tensor->info);
    tensor->file = &file;
    tensor->offset = position;
    tensor->is_outline =
        bytes < static_cast<uint64_t>(tensor->info.stored_bytes());
    tensor->outlined_bytes = bytes;
    position += bytes;
  }
  if (position == file.size()) return tensors;
  return InvalidArgument(file.path(), ": an outline of ", file.size(),
                         " bytes, its header asks for ", position);
}

StatusOr<std::vector<ShardBytes>> OutlineOf(const std::string& name,
                                            const std::string& header,
                                            uint64_t file_bytes) {
  SLUICE_ASSIGN_OR_RETURN(auto tensors, ParseHeader(name, header, file_bytes));
  std::vector<ShardBytes> pieces;
  for (const LocatedTensor* tensor : InOrderOfBytes(tensors)) {
    pieces.push_back({tensor->offset, OutlinedBytes(tensor->info)});
  }
  return pieces;
}

}  // namespace sluice::weights
