#include "common/serving/json_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace sluice::serving {
namespace {

// The whole text, and the longest piece.
std::string All(JsonPieces& pieces, size_t bytes, size_t* longest = nullptr) {
  std::string all;
  while (!pieces.ended()) {
    const std::string piece = pieces.Next(bytes);
    EXPECT_FALSE(piece.empty());
    if (longest != nullptr) *longest = std::max(*longest, piece.size());
    all += piece;
  }
  return all;
}

TEST(JsonPiecesTest, WithoutListsTheTextIsThatOfDumpJson) {
  const Json value = Json::parse(
      R"({"a":[1,2.5,null,{"ü\n":"\"x"}],"b":{},"c":[],"d":true,"e":""})");
  for (const size_t bytes : {1, 3, 1000}) {
    JsonPieces pieces;
    pieces.Write(value);
    EXPECT_EQ(All(pieces, bytes), DumpJson(value));
  }
}

TEST(JsonPiecesTest, ListsStandWhereTheyWerePut) {
  JsonPieces pieces;
  const auto squares = [](size_t i) { return Json(i * i); };
  Json value{{"first", pieces.List(4, squares)},
             {"none", pieces.List(0, squares)},
             {"inner", {{"one", Json::array({pieces.List(1, squares), "x"})}}}};
  pieces.Write(value);
  EXPECT_EQ(All(pieces, 5),
            R"({"first":[0,1,4,9],"none":[],"inner":{"one":[[0],"x"]}})");
}

TEST(JsonPiecesTest, ElementsMayHoldLists) {
  JsonPieces pieces;
  pieces.Write({{"rows", pieces.List(3, [&pieces](size_t row) {
                   return Json{{"row", row},
                               {"columns", pieces.List(row, [row](size_t i) {
                                  return Json(10 * row + i);
                                })}};
                 })}});
  EXPECT_EQ(All(pieces, 1000),
            R"({"rows":[{"row":0,"columns":[]},{"row":1,"columns":[10]},)"
            R"({"row":2,"columns":[20,21]}]})");
}

TEST(JsonPiecesTest, ElementsAreMadeAsTheyAreWanted) {
  JsonPieces pieces;
  size_t made = 0;
  pieces.Write(pieces.List(100000, [&made](size_t) {
    ++made;
    return Json("0123456789");
  }));
  size_t longest = 0;
  longest = pieces.Next(1000).size();
  EXPECT_LE(made, 100u);
  All(pieces, 1000, &longest);
  EXPECT_LT(longest, 1100u);
  EXPECT_EQ(made, 100000u);
}

TEST(JsonPiecesTest, ALongTextIsCut) {
  JsonPieces pieces;
  const Json value{{"text", std::string(100000, 'x')}};
  pieces.Write(value);
  size_t longest = 0;
  EXPECT_EQ(All(pieces, 64, &longest), DumpJson(value));
  EXPECT_LE(longest, 64u);
}

}  // namespace
}  // namespace sluice::serving
