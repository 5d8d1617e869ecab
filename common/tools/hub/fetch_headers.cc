#include "common/tools/hub/fetch_headers.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/base/text_file.h"
#include "common/tools/hub/choose_files.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_protocol.h"
#include "common/tools/hub/read_ranges.h"
#include "common/weights/gguf_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The first bytes of a GGUF that are asked for, and the most: words and scores
// of a large vocabulary take some ten megabytes.
constexpr uint64_t kFirstGgufBytes = uint64_t{1} << 20;
constexpr uint64_t kMostGgufBytes = uint64_t{1} << 29;
constexpr size_t kMaxSmallFile = 64 << 20;
// Tensors that readers of configs read.
constexpr std::string_view kConfigTensor = "rope_f";
constexpr uint64_t kMaxConfigTensor = 1 << 20;

// Writes `text` at `offset` of a file that has `bytes`, most of them a hole.
Status WriteAt(const fs::path& path, uint64_t offset, const std::string& text,
               uint64_t bytes) {
  std::FILE* const file = std::fopen(path.c_str(), offset == 0 ? "wb" : "r+b");
  if (file == nullptr) {
    return Unavailable(path.string(), ": ", std::strerror(errno));
  }
  bool written = ::fseeko(file, static_cast<off_t>(offset), SEEK_SET) == 0 &&
                 std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fclose(file) == 0 && written;
  std::error_code failed;
  if (written) fs::resize_file(path, bytes, failed);
  if (written && !failed) return OkStatus();
  return Unavailable(path.string(), ": cannot be written");
}

bool SaysWhatTheModelIs(const std::string& path) {
  return path == kSafetensorsIndex ||
         (path.ends_with("config.json") && !path.starts_with("tokenizer"));
}

// Fetches the headers of one repository.
class Fetcher {
 public:
  Fetcher(const HubSettings& settings, const HubModel& model,
          PullObserver& observer)
      : settings_(settings),
        model_(model),
        client_({settings.endpoint,
                 IsPrivateEndpoint(settings.endpoint) ? settings.token : "",
                 settings.timeout_s,
                 [&observer](const std::string& why, double seconds) {
                   observer.OnNote(Cat(why, "; again in ", seconds, " s"));
                 }}) {}

  StatusOr<ModelHeaders> Run() {
    SLUICE_RETURN_IF_ERROR(MakeFolder());
    SLUICE_ASSIGN_OR_RETURN(listing_, ListHubModel(settings_, client_, model_));
    made_.commit = listing_.commit;
    SLUICE_RETURN_IF_ERROR(ListQuants());
    auto chosen = ChooseFiles(listing_, model_.quant);
    if (!chosen.ok()) return Annotate(chosen.status(), model_.repository);
    for (const std::string& path : chosen->small) {
      if (!SaysWhatTheModelIs(path)) continue;
      SLUICE_RETURN_IF_ERROR(FetchSmall(path));
    }
    if (chosen->model.empty() && chosen->weights.empty()) {
      SLUICE_ASSIGN_OR_RETURN(
          const std::string index,
          ReadTextFile((made_.folder / kSafetensorsIndex).string()));
      SLUICE_ASSIGN_OR_RETURN(chosen->weights, ShardsOf(index, listing_));
    }
    for (const std::string& path : chosen->weights) {
      const Status fetched = FetchHeader(path);
      if (!fetched.ok()) return Explained(fetched, settings_, model_);
    }
    made_.path = (made_.folder / chosen->model).string();
    if (chosen->model.empty()) made_.path = made_.folder.string();
    return std::move(made_);
  }

 private:
  Status MakeFolder() {
    std::error_code failed;
    std::string made =
        (fs::temp_directory_path(failed) / "sluice-plan-XXXXXX").string();
    if (failed || ::mkdtemp(made.data()) == nullptr) {
      return Unavailable(made, ": ", std::strerror(errno));
    }
    made_.folder = made;
    return OkStatus();
  }

  StatusOr<HubFile> Listed(const std::string& path) {
    HubFile file = *listing_.Find(path);
    SLUICE_RETURN_IF_ERROR(
        CompleteFile(settings_, client_, model_, listing_.commit, file));
    return file;
  }

  Status ListQuants() {
    for (const GgufSet& set : ListGgufs(listing_)) {
      HubGguf& gguf = made_.ggufs.emplace_back();
      gguf.quant = set.name;
      for (const std::string& path : set.files) {
        SLUICE_ASSIGN_OR_RETURN(const HubFile file, Listed(path));
        gguf.bytes += file.bytes;
      }
    }
    return OkStatus();
  }

  std::string Url(const std::string& path) const {
    return FileUrl(settings_, model_.repository, listing_.commit, path);
  }

  Status FetchSmall(const std::string& path) {
    TextReceiver text(kMaxSmallFile);
    if (const Status got = client_.Get(Url(path), text); !got.ok()) {
      return Explained(got, settings_, model_);
    }
    return WriteTextFile((made_.folder / path).string(), text.text());
  }

  Status FetchHeader(const std::string& path) {
    SLUICE_ASSIGN_OR_RETURN(const HubFile file, Listed(path));
    RangeReader reader(client_, Url(path));
    const fs::path to = made_.folder / path;
    std::error_code failed;
    fs::create_directories(to.parent_path(), failed);
    if (path.ends_with(".gguf")) return FetchGguf(reader, file, to);
    SLUICE_ASSIGN_OR_RETURN(const std::string header,
                            ReadSafetensorsHeader(reader, path, file.bytes));
    return WriteAt(to, 0, header, file.bytes);
  }

  // Asks for more until the header is there: nothing tells its size.
  Status FetchGguf(RangeReader& reader, const HubFile& file,
                   const fs::path& to) {
    std::string bytes;
    for (uint64_t wanted = kFirstGgufBytes;; wanted *= 2) {
      const uint64_t end = std::min(wanted, file.bytes);
      SLUICE_ASSIGN_OR_RETURN(const std::string more,
                              reader.Read({bytes.size(), end - bytes.size()}));
      bytes += more;
      if (!bytes.starts_with("GGUF")) {
        return InvalidArgument(file.path, ": is no GGUF");
      }
      SLUICE_RETURN_IF_ERROR(WriteAt(to, 0, bytes, file.bytes));
      SLUICE_ASSIGN_OR_RETURN(const auto opened,
                              weights::RandomAccessFile::Open(to.string()));
      const auto header = weights::ReadGgufHeader(*opened);
      if (header.ok() && IsWhole(*header, bytes.size())) {
        return FetchConfigTensors(reader, *header, file, to);
      }
      if (end < file.bytes && wanted < kMostGgufBytes) continue;
      if (!header.ok()) return Annotate(header.status(), file.path);
      return InvalidArgument(file.path, ": header above the limit of ",
                             kMostGgufBytes, " bytes");
    }
  }

  // Returns whether the header ends within the first `bytes`: its tensors'
  // bytes begin behind it.
  static bool IsWhole(const weights::GgufHeader& header, uint64_t bytes) {
    return std::ranges::all_of(
               header.tensors,
               [&](const auto& tensor) { return tensor.offset > 0; }) &&
           (header.tensors.empty() ||
            std::ranges::min_element(header.tensors, {},
                                     &weights::GgufTensor::offset)
                    ->offset <= bytes);
  }

  Status FetchConfigTensors(RangeReader& reader,
                            const weights::GgufHeader& header,
                            const HubFile& file, const fs::path& to) {
    for (const weights::GgufTensor& tensor : header.tensors) {
      if (!tensor.name.starts_with(kConfigTensor) ||
          tensor.bytes > kMaxConfigTensor) {
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(const std::string bytes,
                              reader.Read({tensor.offset, tensor.bytes}));
      SLUICE_RETURN_IF_ERROR(WriteAt(to, tensor.offset, bytes, file.bytes));
    }
    return OkStatus();
  }

  const HubSettings& settings_;
  const HubModel& model_;
  HubClient client_;
  HubListing listing_;
  ModelHeaders made_;
};

}  // namespace

ModelHeaders::ModelHeaders(ModelHeaders&& other) noexcept
    : folder(std::exchange(other.folder, {})),
      path(std::move(other.path)),
      commit(std::move(other.commit)),
      ggufs(std::move(other.ggufs)) {}

ModelHeaders::~ModelHeaders() {
  std::error_code ignored;
  if (!folder.empty()) fs::remove_all(folder, ignored);
}

StatusOr<ModelHeaders> FetchHeaders(const HubSettings& settings,
                                    const HubModel& model,
                                    PullObserver& observer) {
  if (settings.offline) {
    return FailedPrecondition(model.repository, ": HF_HUB_OFFLINE is set, and ",
                              "sizes are the hub's to tell");
  }
  return Fetcher(settings, model, observer).Run();
}

}  // namespace sluice
