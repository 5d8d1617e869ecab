// Time to load a model's tokenizer, and to encode a text file and decode it
// again with it, on one thread; the best of some rounds:
//   text_encode_speed MODEL FILE [ROUNDS]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "common/text/tokenizer.h"
#include "common/tools/measure/machine.h"

namespace sluice {
namespace {

double BestSeconds(int rounds, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

int Run(const char* model, const char* file, int rounds) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = NotFound("not loaded");
  const double load =
      BestSeconds(1, [&] { tokenizer = Tokenizer::Load(model); });
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", Message(tokenizer.status()).c_str());
    return 1;
  }
  StatusOr<std::vector<TokenId>> ids = NotFound("not encoded");
  const double encode =
      BestSeconds(rounds, [&] { ids = (*tokenizer)->Encode(text.str(), {}); });
  if (!ids.ok()) {
    std::fprintf(stderr, "%s\n", Message(ids.status()).c_str());
    return 1;
  }
  const double decode =
      BestSeconds(rounds, [&] { (void)(*tokenizer)->Decode(*ids, true).ok(); });
  std::printf("%s%s", measure::DescribeCpu().c_str(),
              measure::ReadProbe(1).Describe(5).c_str());
  std::printf("load %.3f s; %zu bytes to %zu ids in %.3f s; back in %.3f s\n",
              load, text.str().size(), ids->size(), encode, decode);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL FILE [ROUNDS]\n", argv[0]);
    return 2;
  }
  return sluice::Run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 3);
}
