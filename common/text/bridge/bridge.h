#ifndef SLUICE_COMMON_TEXT_BRIDGE_BRIDGE_H_
#define SLUICE_COMMON_TEXT_BRIDGE_BRIDGE_H_

#include <stddef.h>
#include <stdint.h>

// The C ABI of the Rust crate in this folder. Text is UTF-8 without a
// terminator. A call that can fail returns a SluiceCode; a panic becomes
// SLUICE_INTERNAL, a failed allocation SLUICE_OUT_OF_MEMORY, and neither
// unwinds. The caller frees an object with its _free
// function. The bridge makes buffers, also for the message of a failed call,
// and the caller frees them with sluice_buffer_free. Several threads may use
// one object at once, except for _free.

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SluiceTokenizer SluiceTokenizer;
typedef struct SluiceTemplate SluiceTemplate;

enum SluiceCode {
  SLUICE_OK = 0,
  SLUICE_INVALID_ARGUMENT = 1,
  SLUICE_RESOURCE_EXHAUSTED = 2,  // a limit on time, memory or length
  SLUICE_INTERNAL = 3,            // a panic within the bridge
  SLUICE_UNIMPLEMENTED = 4,
  SLUICE_OUT_OF_STEPS = 5,   // a rendering's `max_steps`
  SLUICE_OUT_OF_MEMORY = 6,  // an allocation failed; the message is empty
};

// Bytes owned by the bridge.
typedef struct {
  uint8_t* data;
  size_t size;
  size_t capacity;
} SluiceBuffer;

void sluice_buffer_free(SluiceBuffer buffer);

// Bytes [begin, end) of a text that are one control token.
typedef struct {
  size_t begin;
  size_t end;
  uint32_t id;
} SluiceSpan;

// --- Tokenizer -------------------------------------------------------------

enum {
  // Keeps the crate's own pipeline, for tests that compare both.
  SLUICE_KEEP_REFERENCE = 1,
};

// Parses the text of a tokenizer.json. The caller owns *tokenizer on success;
// *message has the error.
int sluice_tokenizer_new(const uint8_t* json, size_t json_size, uint32_t flags,
                         SluiceTokenizer** tokenizer, SluiceBuffer* message);
void sluice_tokenizer_free(SluiceTokenizer* tokenizer);

enum {
  SLUICE_ADD_SPECIAL = 1,    // adds what the post-processor adds (BOS)
  SLUICE_PARSE_SPECIAL = 2,  // added tokens with special: true are recognised
  SLUICE_REFERENCE = 4,      // the crate's own pipeline; needs KEEP_REFERENCE
};

// Writes the ids of `text` as native-endian uint32 to *ids (or the error
// message). The bytes of each span become its id, whatever their text; spans
// ascend and do not overlap. With spans and without PARSE_SPECIAL no other byte
// becomes a token with special: true.
int sluice_tokenizer_encode(const SluiceTokenizer* tokenizer,
                            const uint8_t* text, size_t text_size,
                            uint32_t flags, const SluiceSpan* spans,
                            size_t num_spans, SluiceBuffer* ids);

enum {  // per token
  SLUICE_TOKEN_EXISTS = 1,
  SLUICE_TOKEN_SPECIAL = 2,
  SLUICE_TOKEN_ADDED = 4,
};
enum {  // how decoded tokens are joined
  SLUICE_JOIN_WITH_SPACE = 1,
  SLUICE_STRIP_LEADING_SPACE = 2,
};

// The whole vocabulary: uint32 join rule, uint32 number of ids, then per id
// uint32 flags, uint32 name size, uint32 bytes size, name, bytes; no padding.
// `name` is the token as the file spells it, `bytes` what it decodes to.
int sluice_tokenizer_vocabulary(const SluiceTokenizer* tokenizer,
                                SluiceBuffer* table);

// The bounds of a tokenizer, for any text.
typedef struct {
  // A text has at most this many times the bytes of its decoded tokens. 0: no
  // bound (a normalizer that drops characters, or added tokens that swallow
  // spaces).
  uint32_t max_shrinking;
  // 1: the pre-tokenizer takes linear time; 0: it is bounded by a clock only.
  uint32_t is_linear;
} SluiceTraits;
SluiceTraits sluice_tokenizer_traits(const SluiceTokenizer* tokenizer);

// --- Template --------------------------------------------------------------

// Compiles a chat template, set up as transformers sets jinja2 up.
int sluice_template_new(const uint8_t* source, size_t source_size,
                        SluiceTemplate** compiled, SluiceBuffer* message);
void sluice_template_free(SluiceTemplate* compiled);
// Writes the names of the variables that the template reads from outside, in
// any of its branches, a line each.
int sluice_template_reads(const SluiceTemplate* compiled, SluiceBuffer* names);

// Variables that several renderings share.
typedef struct SluiceVariables SluiceVariables;

// Parses `json`, an object. The caller owns *variables on success; *message has
// the error.
int sluice_variables_new(const uint8_t* json, size_t json_size,
                         SluiceVariables** variables, SluiceBuffer* message);
void sluice_variables_free(SluiceVariables* variables);

// Renders, on the caller's thread, with the variables of `names`, a small JSON
// object, and of `variables`, which override `names`. `now` is strftime_now's
// wall clock, in seconds since 1970 in its own zone. SLUICE_INVALID_ARGUMENT:
// the template refused (with raise_exception's own message) or failed.
// SLUICE_OUT_OF_STEPS: more than `max_steps` instructions.
// SLUICE_RESOURCE_EXHAUSTED: more than `max_output` bytes.
int sluice_template_render(const SluiceTemplate* compiled, const uint8_t* names,
                           size_t names_size, const SluiceVariables* variables,
                           int64_t now, size_t max_output, uint64_t max_steps,
                           SluiceBuffer* output);

// --- Grammars --------------------------------------------------------------

// A vocabulary as a trie. Grammars share it.
typedef struct SluiceGrammarEnv SluiceGrammarEnv;
// A compiled grammar; several threads may make matchers of it at once.
typedef struct SluiceGrammar SluiceGrammar;
// One sequence's place in a grammar, for one thread at a time.
typedef struct SluiceMatcher SluiceMatcher;

// `tokenizer` outlives the environment, its grammars and their matchers. Masks
// have ids below `vocab_size`; of `eos`, at least one is below it.
int sluice_grammar_env_new(const SluiceTokenizer* tokenizer,
                           uint32_t vocab_size, const uint32_t* eos,
                           size_t num_eos, SluiceGrammarEnv** env,
                           SluiceBuffer* message);
// The same of `table`, which sluice_tokenizer_vocabulary wrote, maybe in
// another process. Without a tokenizer the longest tokens spell what a grammar
// forces.
int sluice_grammar_env_of_table(const uint8_t* table, size_t table_size,
                                uint32_t vocab_size, const uint32_t* eos,
                                size_t num_eos, SluiceGrammarEnv** env,
                                SluiceBuffer* message);
void sluice_grammar_env_free(SluiceGrammarEnv* env);

// Bounds of a grammar's text.
typedef struct {
  size_t max_bytes;
  uint32_t max_levels;  // of nested objects and arrays of a schema
  uint32_t max_enum_values;
  uint32_t max_compile_ms;  // of CPU time; 0: no limit
  uint32_t is_trial;        // not 0: on half the stack
} SluiceGrammarLimits;

// Compiles `text`, whose `kind` is a GrammarSpec::Kind (grammar.h). The caller
// owns *grammar on success; *message says what is wrong with the text.
int sluice_grammar_new(const SluiceGrammarEnv* env, uint32_t kind,
                       const uint8_t* text, size_t text_size,
                       SluiceGrammarLimits limits, SluiceGrammar** grammar,
                       SluiceBuffer* message);
void sluice_grammar_free(SluiceGrammar* grammar);

// Checks a JSON Schema; *checked is the schema with the options that all have,
// or the message.
int sluice_schema_check(const uint8_t* text, size_t text_size,
                        SluiceGrammarLimits limits, SluiceBuffer* checked);

// The terminal of a Lark grammar for the bare text of a string: what `pattern`
// and `format` of the schema `text` let through; empty where neither is there
// or holds strings. INVALID_ARGUMENT as sluice_schema_check.
int sluice_string_terminal(const uint8_t* text, size_t text_size,
                           SluiceGrammarLimits limits, SluiceBuffer* terminal);

// Turns a GBNF into the text of a Lark grammar, or writes the message.
int sluice_gbnf_to_lark(const uint8_t* text, size_t text_size,
                        SluiceGrammarLimits limits, SluiceBuffer* lark);

// After SLUICE_OUT_OF_MEMORY the grammar is of no more use.
int sluice_matcher_new(const SluiceGrammar* grammar, SluiceMatcher** matcher,
                       SluiceBuffer* message);
void sluice_matcher_free(SluiceMatcher* matcher);

enum {                       // flags of a step
  SLUICE_STEP_COMPLETE = 1,  // the answer is whole, and nothing may follow
};

// Takes in `tokens`, the next of the sequence, and writes the step behind them:
// uint32 flags, number of forced tokens (at most `max_forced`), these, number
// of runs, and per run its begin and end: the ids that may follow behind the
// forced tokens. The last token of an answer is not among the forced ones.
// SLUICE_RESOURCE_EXHAUSTED: the grammar is too complex here;
// SLUICE_INVALID_ARGUMENT: a token that the grammar does not allow. A matcher
// is of no use after an error.
int sluice_matcher_step(SluiceMatcher* matcher, const uint32_t* tokens,
                        size_t num_tokens, size_t max_forced,
                        SluiceBuffer* step);

// Panics on purpose: returns SLUICE_INTERNAL and "test panic" in *message.
int sluice_bridge_test_panic(SluiceBuffer* message);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // SLUICE_COMMON_TEXT_BRIDGE_BRIDGE_H_
