// The command eval make-reference.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_model.h"
#include "common/tools/hub/pull.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/launcher.h"
#include "services/cli/model_cluster.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kProgram[] = "make_reference";  // in share/sluice
constexpr char kProgramSource[] = "services/cli/make_reference";

struct MakeReferenceOptions {
  std::string model, out = ".", prompts, dtype = "float32", venv, python;
  int64_t max_tokens = 32;
};

// A pull that fetches nothing has nothing to tell.
class SilentObserver : public PullObserver {
  void OnNote(const std::string&) override {}
  void OnFile(const std::string&, uint64_t) override {}
  void OnBytes(uint64_t, uint64_t) override {}
};

StatusOr<std::string> DefaultModelPath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path folder =
      cache != nullptr && *cache != '\0'
          ? fs::path(cache)
          : fs::path(home == nullptr ? "" : home) / ".cache";
  const fs::path path = folder / "sluice" / "models" / kDefaultModelFile;
  std::error_code error;
  if (fs::exists(path, error)) return path.string();
  return NotFound("the default model is not at ", path.string(),
                  ": sluice run default fetches it");
}

// Returns where the files of a model are, as `up --model` takes its name.
StatusOr<std::string> PathOfModel(const std::string& model) {
  std::error_code error;
  if (fs::exists(model, error)) return fs::absolute(model).string();
  if (model == "default") return DefaultModelPath();
  const auto parsed = ParseHubModel(model);
  if (!parsed.ok()) {
    return Annotate(parsed.status(), "MODEL: there is no folder or file '",
                    model, "', and as a hub's");
  }
  HubSettings settings = HubSettingsOfEnvironment();
  settings.offline = true;
  SilentObserver observer;
  const auto pulled = PullModel(settings, *parsed, observer);
  if (pulled.ok()) return pulled->path;
  if (pulled.status().code() != StatusCode::kNotFound) return pulled.status();
  return NotFound("'", model, "' is no folder or file, and ",
                  parsed->repository, "@", parsed->revision,
                  " is not whole in ", settings.cache, ": sluice pull ", model,
                  " fetches it");
}

// Returns a model's name for people and files.
std::string NameOf(const std::string& model) {
  fs::path path = model;
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
}

Status MakeReference(const MakeReferenceOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string path, PathOfModel(options.model));
  Words words = {"--model",      path,
                 "--name",       NameOf(options.model),
                 "--out",        options.out,
                 "--dtype",      options.dtype,
                 "--max-tokens", std::to_string(options.max_tokens)};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--prompts", options.prompts);
  add("--venv", options.venv);
  add("--python", options.python);
  SLUICE_ASSIGN_OR_RETURN(Words argv,
                          PythonProgram(kProgram, kProgramSource, words));
  return Become(std::move(argv));
}

}  // namespace

void AddMakeReference(CommandLine& sluice) {
  const auto options = std::make_shared<MakeReferenceOptions>();
  CLI::App& make = sluice.AddPart(
      "eval", "make-reference",
      "what transformers answers with a model, as a reference for eval",
      [options] { return MakeReference(*options); });
  make.add_option("MODEL", options->model,
                  "a Hugging Face folder or a GGUF, a hub's "
                  "ORG/NAME[@REVISION][:QUANT] that was pulled, or default")
      ->required();
  make.add_option("--out", options->out,
                  "the file, or the folder of NAME.reference.json (.)");
  make.add_option(
      "--prompts", options->prompts,
      "JSON lines {\"prompt\": text or ids} or {\"messages\": "
      "[..]}, and \"name\" (twenty of our own, and two of 2,000 and "
      "4,000 tokens)");
  make.add_option("--dtype", options->dtype, "what it computes in (float32)")
      ->check(CLI::IsMember({"float64", "float32", "bfloat16"}));
  make.add_option("--max-tokens", options->max_tokens,
                  "of an answer, which an end token ends sooner (32)")
      ->check(Within(1, 4096));
  make.add_option("--venv", options->venv,
                  "the virtual environment that it makes, once "
                  "(~/.cache/sluice/reference-venv)");
  make.add_option("--python", options->python,
                  "an interpreter that has torch and transformers, in the "
                  "place of an environment");
}

}  // namespace sluice::cli
