#include "trireme/cli/time_left.h"

namespace trireme::cli {

void TimeLeft::reached(double share, double now) {
  if (share <= 0 || share < share_) {
    first_share_ = share_ = share;
    first_ = last_ = now;
  } else if (share > share_) {
    share_ = share;
    last_ = now;
  }
}

std::optional<double> TimeLeft::seconds(double now) const {
  if (share_ <= first_share_ || share_ >= 1) return std::nullopt;
  const double left = (last_ - first_) / (share_ - first_share_) * (1 - share_) - (now - last_);
  return left > 0 ? std::optional(left) : std::nullopt;
}

}  // namespace trireme::cli
