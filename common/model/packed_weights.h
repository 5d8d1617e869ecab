#ifndef SLUICE_COMMON_MODEL_PACKED_WEIGHTS_H_
#define SLUICE_COMMON_MODEL_PACKED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/concurrency/thread_team.h"
#include "common/device/backend.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"
#include "common/weights/own_folder.h"
#include "common/weights/packed_file.h"
#include "common/weights/packed_store.h"

namespace sluice {

// With "auto", packed weights of a smaller model are not kept: it loads as
// fast.
inline constexpr uint64_t kLeastPackedModel = uint64_t{64} << 20;

struct PackedOptions {
  // --packed: "off"; "auto": beside the model, or in the user's cache where
  // that cannot be written; or a folder, for any number of models.
  std::string where = "off";
  weights::PackedMemory memory = weights::PackedMemory::kCopy;
  // How much the files may take. A model_bytes of 0 becomes what the model's
  // tensors take as they are stored.
  weights::PackedBounds bounds;
  // How long another process may hold a file's lock without progress.
  Duration patience = weights::kPackedPatience;
};

// The most of --packed-gb.
inline constexpr double kMostPackedGb = 1e6;

// Returns the bytes of --packed-gb; absent for 0. INVALID_ARGUMENT below 0 and
// above kMostPackedGb.
StatusOr<std::optional<uint64_t>> ParsePackedGb(double gigabytes);

// Returns the options with a bound for one model: what its weights take once in
// memory, and room for what layouts and cuts add.
PackedOptions BoundFor(PackedOptions options, const ModelConfig& config,
                       const weights::ModelFile& model, WeightsMode mode);

// The packed weights of one model on disk, in a folder of this process's user
// (own_folder.h). A file has a layer, a run of a layer's experts, or the
// embedding or head, so that stages of any cuts share what is equal; the ranks
// of one process copy their parts out of files of whole layers, unless memory
// is mapped: then each rank has files of its own. The
// key of a file names the layout, the rows and columns in it, the digest of the
// model, size and time of its files, and the digest of the sums that they were
// checked against; a file of another key, or one that is not believed, is made
// anew. Used by one thread while it loads; weights outlive the object.
class PackedWeights {
 public:
  using Weights = std::vector<std::unique_ptr<Weight>>;

  // Weights that a file holds together.
  struct Group {
    std::string name;      // begins the file's name
    std::string contents;  // tells them from all others of the model
    bool operator==(const Group&) const = default;
  };

  PackedWeights() = default;  // keeps nothing
  // `threads` read and check files; 0: as many as this process has cores.
  // `digest`: of `model`, ModelDigest::Hex.
  PackedWeights(const PackedOptions& options, int32_t threads,
                const weights::ModelFile& model, const std::string& digest);
  ~PackedWeights();

  // Returns the group's weights for `backend`: from its file, or what `pack`
  // returns, which is then written and read back. Weights that cannot be
  // written stay as packed, and the log says why; later ones are then written
  // to the next place, if there is another. Errors are those of `pack`.
  StatusOr<Weights> Load(const Group& group, const Backend& backend,
                         const std::function<StatusOr<Weights>()>& pack);
  // Whether the ranks of one process copy their parts out of Whole's weights.
  bool SharesWhole(const Backend& backend) const;
  // As Load; the latest result is kept for the next rank that asks for it.
  StatusOr<std::shared_ptr<const Weights>> Whole(
      const Group& group, const Backend& backend,
      const std::function<StatusOr<Weights>()>& pack);
  // Drops Whole's latest result.
  void DropWhole() { whole_.reset(); }
  // Returns what keeps files marked as used whose weights were copied.
  std::shared_ptr<const void> Marks() const;
  kernels::Context context() const { return {team_.get()}; }
  // Tells the log what was read and written, if anything is kept.
  void LogUse() const;

 private:
  // The process' own folder, below a base that any user may write.
  struct Place {
    std::string base;
    std::string below;                                 // "": of one model
    std::shared_ptr<const weights::OwnFolder> folder;  // null: not opened
    std::shared_ptr<weights::UseMarks> marks;          // with the folder
    Status Open(weights::OwnFolder::Missing missing);
  };

  static std::vector<Place> PlacesOf(const std::string& where,
                                     const weights::ModelFile& model);
  // `node`: the NUMA node whose memory is preferred.
  StatusOr<Weights> Open(const Place& place, const std::string& name,
                         const std::string& key, int node);
  // The right to write to a place, whose folder is made if there is none.
  StatusOr<std::unique_ptr<weights::PackedDraft>> DraftIn(
      Place& place, const std::string& name) const;
  // Writes weights to the place, within its bounds.
  Status Write(const Place& place, const std::string& key,
               const Weights& weights, weights::PackedDraft& draft) const;
  // Writes what `pack` returns to the first place that takes it.
  StatusOr<Weights> Keep(const std::string& name, const std::string& key,
                         int node,
                         const std::function<StatusOr<Weights>()>& pack);

  std::string source_;  // of a key: the model's files
  std::vector<Place> places_;
  size_t written_to_ = 0;  // index of the place; their number: none
  std::unique_ptr<ThreadTeam> team_;
  PackedOptions options_;
  Group whole_group_;
  std::shared_ptr<const Weights> whole_;
  uint64_t bytes_ = 0;
  int32_t files_ = 0;
  int32_t written_files_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_PACKED_WEIGHTS_H_
