// reference_logits MODEL: for every line of token ids on stdin, the logits at
// all their positions in double, as bytes on stdout, [T, V] (little-endian).
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/model/reference_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: reference_logits MODEL < IDS > LOGITS\n", stderr);
    return 2;
  }
  const sluice::testing::ReferenceModel model(argv[1]);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::vector<sluice::TokenId> ids;
    for (sluice::TokenId id = 0; words >> id;) ids.push_back(id);
    const std::vector<double> logits = model.Logits(ids);
    if (std::fwrite(logits.data(), sizeof(double), logits.size(), stdout) !=
        logits.size()) {
      return 1;
    }
  }
  return 0;
}
