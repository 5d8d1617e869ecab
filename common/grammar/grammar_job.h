#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_JOB_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/grammar/compile_process.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/grammar_texts.h"

namespace sluice {

// The work on the texts of one request: each of them is tried in the compiler's
// process first, all by one trial, and together within max_compile_ms. Not
// thread-safe. INVALID_ARGUMENT is about the text; IsOfTheMoment tells the
// errors that are not.
class GrammarJob : public GrammarTexts {
 public:
  // `compiler` must outlive the job. Tenants share no grammar.
  GrammarJob(GrammarCompiler& compiler, std::string_view tenant,
             GrammarPatience patience = {});

  // Returns the compiled grammar, from the cache if the tenant has it there.
  StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSpec& spec);
  // Says whether Compile would return it, without compiling it here.
  Status Try(const GrammarSpec& spec);

  StatusOr<std::string> CheckSchema(std::string_view schema) const override;
  StatusOr<std::string> LarkOfGbnf(std::string_view gbnf) const override;
  const GrammarLimits& limits() const override;

  // What follows has max_compile_ms anew.
  void BeginAnew() { spent_ms_ = 0; }

  // The grammar that Remember was given for `request`, which says all that the
  // grammar depends on; or null.
  std::shared_ptr<const Grammar> Find(std::string_view request) const;
  void Remember(std::string_view request,
                std::shared_ptr<const Grammar> grammar) const;

 private:
  StatusOr<GrammarCompiler::Vocabulary> AwaitVocabulary() const;
  // Asks the trial; an error of the text begins with `what`.
  StatusOr<TrialAnswer> Ask(TrialQuestion question,
                            std::string_view what) const;
  StatusOr<TrialAnswer> TryText(const GrammarSpec& spec) const;
  // What the trial makes of a text; an error of the text begins with `named`.
  StatusOr<std::string> TriedText(TrialQuestion::What what,
                                  std::string_view text,
                                  std::string_view named) const;
  Status TooSlow(std::string_view what) const;

  GrammarCompiler& compiler_;
  const std::string tenant_;
  const GrammarPatience patience_;
  mutable std::optional<CompileTrial> trial_;  // nothing: texts are not tried
  mutable double spent_ms_ = 0;                // of CPU time by trials
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_JOB_H_
