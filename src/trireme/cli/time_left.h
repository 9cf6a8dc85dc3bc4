#pragma once
#include <optional>

namespace trireme::cli {

// How long work still takes, from how far it has come. It knows no clock: moments are given, in seconds since any fixed
// one.
//
//   TimeLeft left;
//   left.reached(0.0, now);    // a phase begins
//   left.reached(0.5, now);    // half of it is done
//   left.seconds(now);         // as long again, less what has passed since
//
// Between two reports the answer counts down: a step that takes long does not make the rest of the work longer.
class TimeLeft {
 public:
  // At `now` this share of the work was done. A share that is 0, or less than before, begins a new phase.
  void reached(double share, double now);
  // Nothing where nothing is known: before the first share, behind the last, or when all that was expected has passed.
  std::optional<double> seconds(double now) const;

 private:
  double first_share_ = 0, first_ = 0;  // where the phase began, and when
  double share_ = 0, last_ = 0;         // how far it has come, and since when
};

}  // namespace trireme::cli
