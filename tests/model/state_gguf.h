#ifndef SLUICE_TESTS_MODEL_STATE_GGUF_H_
#define SLUICE_TESTS_MODEL_STATE_GGUF_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {

// A golden model with states, and the keys that llama.cpp's converter gives its
// architecture beyond those of all.
struct StateCase {
  const char* golden;
  const char* architecture;
  std::vector<std::pair<const char*, const char*>> keys;  // of config.json
  // Old files keep the checkpoint's rows of q, k, v and z together.
  bool old = false;

  std::string Name() const;
};
std::ostream& operator<<(std::ostream& out, const StateCase& family);
std::vector<StateCase> StateCases();

// What becomes of matrices whose rows are whole blocks of 32.
enum class StateTypes {
  kF32,
  kQ8,       // Q8_0
  kWidened,  // F32 of the elements that Q8_0 has
};

// Writes a model with states as a GGUF, with the names, shapes, orders and
// elements of llama.cpp's converter: norms with the 1 added, rates of decay
// -e^A_log, convolutions without their middle dimension, value heads tiled,
// experts stacked, Falcon-H1's multipliers in the weights.
class StateConverter {
 public:
  StateConverter(const weights::ModelFile& from, const StateCase& family,
                 StateTypes types);
  std::string Convert();

 private:
  using Shape = std::vector<int64_t>;
  struct Values {
    Shape shape;
    std::vector<float> elements;
    int64_t rows() const {
      return static_cast<int64_t>(elements.size()) / shape.back();
    }
  };

  int64_t Int(const char* key) const;
  bool Is(const char* architecture) const;
  void Number(const std::string& key, const Json& value);
  void Ints(const std::string& key, const std::vector<int32_t>& values);
  void WriteKeys();
  void WriteLayerKeys();
  // Letters of Nemotron-H, and of others A with attention and M without.
  std::string LayersOf() const;

  void WriteTensor(const std::string& name);
  void WriteOfLayer(const std::string& layer, const std::string& rest,
                    Values values);
  void WriteQkvz(const std::string& layer, const Values& values);
  void WriteExpert(const std::string& layer, const std::string& rest);
  void WriteHalves(const std::string& layer, const Values& values,
                   const char* gate, const char* up);
  void Write(const std::string& name, const Values& values);

  Values Read(const std::string& name) const;
  // The rows [begin, end), by whole heads tiled from `first` on.
  static void Tile(int64_t groups, int64_t head, int64_t first, Values& values);
  void TileHeads(const std::string& rest, Values& values) const;
  void Permute(const std::string& rest, Values& values) const;
  void Multiply(const std::string& rest, Values& values) const;

  const weights::ModelFile& from_;
  const StateCase& family_;
  const StateTypes types_;
  const Json config_;
  GgufBuilder gguf_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_STATE_GGUF_H_
