#ifndef SLUICE_COMMON_PIPELINE_RANKS_RANK_LIST_H_
#define SLUICE_COMMON_PIPELINE_RANKS_RANK_LIST_H_

#include <cstdint>
#include <string>

#include "common/base/cat.h"

namespace sluice {

// Lists ranks, as "4 to 7, 12".
class RankList {
 public:
  // [begin, end), which may be empty, behind those before.
  void Add(int32_t begin, int32_t end) {
    if (begin >= end) return;
    if (begin != end_) {
      Close();
      begin_ = begin;
    }
    end_ = end;
    count_ += end - begin;
  }
  // "waits for ranks 4 to 7, 12" and `what`; empty if there are none.
  std::string Wait(const char* what) {
    Close();
    if (count_ == 0) return "";
    return Cat("waits for rank", count_ == 1 ? " " : "s ", text_, what);
  }

 private:
  void Close() {
    if (begin_ >= end_) return;
    text_ += Cat(text_.empty() ? "" : ", ", begin_);
    if (end_ - begin_ > 1) text_ += Cat(" to ", end_ - 1);
    begin_ = end_;
  }
  std::string text_;
  int32_t begin_ = 0;
  int32_t end_ = 0;
  int32_t count_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_RANK_LIST_H_
