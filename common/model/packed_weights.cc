#include "common/model/packed_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/control_group.h"
#include "common/base/log.h"
#include "common/placement/layer_loads.h"
#include "common/weights/weight_sums.h"
#include "common/weights/xxh64.h"
#include "kernels/block_pack.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Rises whenever the same model and group give other bytes: with what reading
// makes of a file, and with the layouts.
constexpr int kVersion = 3;

std::string HashOf(std::string_view text) {
  return weights::SumToHex(weights::Xxh64(text.data(), text.size()));
}

uint64_t StoredBytes(const weights::ModelFile& model) {
  uint64_t bytes = 0;
  for (const weights::TensorInfo& tensor : model.tensors()) {
    bytes += static_cast<uint64_t>(tensor.stored_bytes());
  }
  return bytes;
}

// Returns what files of so many bytes of weights may take: layouts fill up
// groups of rows, and heads and alignment count in small models.
uint64_t WithRoom(uint64_t bytes) {
  return std::max(kLeastPackedModel, bytes + bytes / 16);
}

// Returns what the model's bytes are known by: a line per file that has
// tensors, of name, size and time of the last change, and the sums that its
// pieces are checked against.
std::string BytesOf(const weights::ModelFile& model) {
  std::set<std::string> paths;
  for (const weights::TensorInfo& tensor : model.tensors()) {
    paths.insert(*model.FileOf(tensor.name));
  }
  std::string lines;
  for (const std::string& path : paths) {
    struct stat info = {};
    ::stat(path.c_str(), &info);
    lines += Cat(fs::path(path).filename().string(), " ", info.st_size, " ",
                 info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  }
  const std::string& sums = model.sums_digest();
  return Cat(lines, "sums ", sums.empty() ? "none" : sums, "\n");
}

// Returns the name of this model's folder among those of others.
std::string NameOf(const weights::ModelFile& model) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(model.path(), error);
  if (error) path = model.path();
  if (!path.has_filename()) path = path.parent_path();
  return Cat(path.filename().string(), "-", HashOf(path.string()));
}

// "DIR/sluice.packed", "FILE.gguf.sluice.packed".
std::string BesideModel(const weights::ModelFile& model) {
  std::string path = model.sums_path();
  path.resize(path.size() - std::string_view("sums").size());
  return path + "packed";
}

std::vector<weights::PackedPart> PartsOf(
    const PackedWeights::Weights& weights) {
  std::vector<weights::PackedPart> parts;
  for (size_t i = 0; i < weights.size(); ++i) {
    for (const WeightPart& part : weights[i]->parts) {
      parts.push_back({i, part.type, part.rows, weights[i]->cols,
                       static_cast<const std::byte*>(part.data.data()),
                       part.data.bytes()});
    }
  }
  return parts;
}

// A file in memory, and its mark on disk.
struct Used {
  std::shared_ptr<const weights::PackedFile> file;
  std::shared_ptr<weights::UseMarks> marks;
};

// Returns the weights of a file, each of which keeps it in memory and marked.
PackedWeights::Weights WeightsIn(
    std::shared_ptr<const weights::PackedFile> file,
    std::shared_ptr<weights::UseMarks> marks) {
  PackedWeights::Weights weights;
  const auto used = std::make_shared<const Used>(Used{file, std::move(marks)});
  for (const weights::PackedPart& part : file->parts()) {
    if (weights.size() == part.weight) {
      weights.push_back(std::make_unique<Weight>());
    }
    Weight& weight = *weights.back();
    weight.rows += part.rows;
    weight.cols = part.cols;
    auto* const data = const_cast<std::byte*>(part.data);  // only read
    weight.parts.push_back(
        {part.type, part.rows, DeviceMemory(nullptr, data, part.bytes)});
    weight.memory = used;
  }
  return weights;
}

}  // namespace

StatusOr<std::optional<uint64_t>> ParsePackedGb(double gigabytes) {
  if (!(gigabytes >= 0 && gigabytes <= kMostPackedGb)) {
    return InvalidArgument("packed-gb must be between 0 and ", kMostPackedGb,
                           ", got ", gigabytes);
  }
  std::optional<uint64_t> bytes;
  if (gigabytes > 0) bytes = static_cast<uint64_t>(gigabytes * 1e9);
  return bytes;
}

PackedOptions BoundFor(PackedOptions options, const ModelConfig& config,
                       const weights::ModelFile& model, WeightsMode mode) {
  LayerLoadOptions loading;
  loading.weights = mode;
  const LayerLoads loads = LoadsOf(config, model, loading);
  // A tied head is packed beside the embedding where ranks cut and map it.
  options.bounds.model_bytes =
      WithRoom(loads.Of({0, loads.num_layers()}).weights +
               (loads.tied ? loads.embedding : 0));
  return options;
}

PackedWeights::PackedWeights(const PackedOptions& options, int32_t threads,
                             const weights::ModelFile& model,
                             const std::string& digest)
    : source_(
          Cat("sluice ", kVersion, "\nmodel ", digest, "\n", BytesOf(model))),
      places_(PlacesOf(options.where, model)),
      options_(options) {
  if (places_.empty()) return;
  uint64_t& most = options_.bounds.model_bytes;
  if (most == 0) most = WithRoom(StoredBytes(model));
  if (threads == 0) threads = UsableCpus();
  team_ =
      std::make_unique<ThreadTeam>(ThreadTeamOptions{threads, {}, "packed"});
  for (Place& place : places_) {
    // Why a place cannot be used is said when it is to be written.
    (void)place.Open(weights::OwnFolder::Missing::kFail);
  }
}

PackedWeights::~PackedWeights() = default;

std::vector<PackedWeights::Place> PackedWeights::PlacesOf(
    const std::string& where, const weights::ModelFile& model) {
  if (where.empty() || where == "off") return {};
  if (where != "auto") return {{where, NameOf(model), nullptr, nullptr}};
  if (StoredBytes(model) < kLeastPackedModel) return {};
  std::vector<Place> places = {{BesideModel(model), "", nullptr, nullptr}};
  const std::string users = weights::UsersPackedFolder();
  if (users.empty()) return places;
  places.push_back({users, NameOf(model), nullptr, nullptr});
  return places;
}

Status PackedWeights::Place::Open(weights::OwnFolder::Missing missing) {
  if (folder != nullptr) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(folder,
                          weights::OwnFolder::Open(base, below, missing));
  marks = std::make_shared<weights::UseMarks>(*folder);
  return OkStatus();
}

StatusOr<PackedWeights::Weights> PackedWeights::Open(const Place& place,
                                                     const std::string& name,
                                                     const std::string& key,
                                                     int node) {
  SLUICE_ASSIGN_OR_RETURN(const auto opened, place.folder->OpenFile(name));
  SLUICE_ASSIGN_OR_RETURN(
      auto file, weights::PackedFile::Read(*opened, key, place.folder->secret(),
                                           options_.memory, context(), node));
  place.marks->Mark(name, *opened);
  ++files_;
  bytes_ += file->bytes();
  return WeightsIn(std::move(file), place.marks);
}

StatusOr<std::unique_ptr<weights::PackedDraft>> PackedWeights::DraftIn(
    Place& place, const std::string& name) const {
  SLUICE_RETURN_IF_ERROR(place.Open(weights::OwnFolder::Missing::kMake));
  return weights::PackedDraft::Lock(place.folder, name, options_.patience);
}

Status PackedWeights::Write(const Place& place, const std::string& key,
                            const Weights& weights,
                            weights::PackedDraft& draft) const {
  const std::vector<weights::PackedPart> parts = PartsOf(weights);
  SLUICE_RETURN_IF_ERROR(weights::MakeRoom(
      *place.folder, options_.bounds, weights::PackedBytes(key, parts), draft));
  return draft.Commit(key, parts, context());
}

StatusOr<PackedWeights::Weights> PackedWeights::Keep(
    const std::string& name, const std::string& key, int node,
    const std::function<StatusOr<Weights>()>& pack) {
  std::optional<Weights> packed;
  for (; written_to_ < places_.size(); ++written_to_) {
    Place& place = places_[written_to_];
    auto draft = DraftIn(place, name);
    Status kept = draft.status();
    if (kept.ok()) {
      // Another process may have written the file before this one's turn.
      auto found = Open(place, name, key, node);
      if (found.ok()) return found;
      if (!packed.has_value()) {
        SLUICE_ASSIGN_OR_RETURN(packed, pack());
      }
      kept = Write(place, key, *packed, **draft);
    }
    if (kept.ok()) {
      ++written_files_;
      auto found = Open(place, name, key, node);
      if (found.ok()) return found;
      kept = found.status();
    }
    const bool last = written_to_ + 1 == places_.size();
    Log(last ? LogLevel::kWarning : LogLevel::kInfo,
        Cat("packed weights are not kept in ", place.base, ": ", Message(kept),
            last ? "; every start packs them" : ""));
  }
  if (packed.has_value()) return std::move(*packed);
  return pack();
}

StatusOr<PackedWeights::Weights> PackedWeights::Load(
    const Group& group, const Backend& backend,
    const std::function<StatusOr<Weights>()>& pack) {
  const BackendInfo& device = backend.info();
  if (places_.empty() || !device.shares_host_memory) return pack();
  const std::string contents =
      Cat("layout ", device.layout, "\n", group.contents);
  const std::string key = source_ + contents;
  const std::string name = Cat(group.name, "-", HashOf(contents), ".packed");
  for (const Place& place : places_) {
    if (place.folder == nullptr) continue;
    auto found = Open(place, name, key, device.memory_node);
    if (found.ok()) return found;
    if (found.status().code() == StatusCode::kNotFound) continue;
    const bool stale = found.status().code() == StatusCode::kFailedPrecondition;
    Log(stale ? LogLevel::kInfo : LogLevel::kWarning,
        Cat(Message(found.status()), "; it is made anew"));
  }
  return Keep(name, key, device.memory_node, pack);
}

bool PackedWeights::SharesWhole(const Backend& backend) const {
  return !places_.empty() && options_.memory == weights::PackedMemory::kCopy &&
         backend.info().layout == kernels::kPackedLayout &&
         backend.info().shares_host_memory;
}

StatusOr<std::shared_ptr<const PackedWeights::Weights>> PackedWeights::Whole(
    const Group& group, const Backend& backend,
    const std::function<StatusOr<Weights>()>& pack) {
  if (whole_ != nullptr && group == whole_group_) return whole_;
  whole_.reset();  // before there are two
  SLUICE_ASSIGN_OR_RETURN(Weights loaded, Load(group, backend, pack));
  whole_ = std::make_shared<const Weights>(std::move(loaded));
  whole_group_ = group;
  return whole_;
}

std::shared_ptr<const void> PackedWeights::Marks() const {
  auto marks = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  for (const Place& place : places_) marks->push_back(place.marks);
  return marks;
}

void PackedWeights::LogUse() const {
  if (places_.empty()) return;
  const bool maps = options_.memory == weights::PackedMemory::kMap;
  LogInfo("packed weights: ", files_, " files are ", maps ? "mapped" : "read",
          ", ", bytes_ / 1000000, " MB; this start wrote ", written_files_);
}

}  // namespace sluice
