#ifndef SLUICE_COMMON_SERVING_EMBEDDINGS_H_
#define SLUICE_COMMON_SERVING_EMBEDDINGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/http/exchange.h"
#include "common/http/message.h"
#include "common/serving/context.h"
#include "common/serving/prepare.h"
#include "common/serving/request.h"

namespace sluice::serving {

// The most inputs of a request.
inline constexpr size_t kMaxEmbeddingInputs = 2048;

// The answer to a request: an embedding of each input, of Euclidean norm 1.
struct Embeddings {
  std::vector<std::vector<float>> rows;
  int64_t prompt_tokens = 0;
  Duration took{};  // from the request's arrival
};

// What a client asks for, in any dialect.
struct EmbeddingsRequest {
  std::string model;           // empty: not given
  std::string_view input;      // the field of the inputs, for errors
  std::vector<Prompt> inputs;  // may be none
  size_t dimensions = 0;       // values of an embedding; 0: all
  bool truncates = false;      // an input that is too long is cut
  bool adds_special_tokens = true;
  // Returns the answer. Any thread.
  std::function<http::HttpResponse(const Embeddings& embeddings)> write;
};

// Computes the embeddings of the request that `parse` returns, and answers with
// what its `write` makes of them, or with an error. Bodies are parsed and
// answers are written as text work. On the exchange's loop. INVALID_ARGUMENT
// for a model whose files name no pooling.
void RunEmbeddings(const ServingContext& context,
                   Maker<EmbeddingsRequest> parse,
                   std::shared_ptr<http::Exchange> exchange);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_EMBEDDINGS_H_
