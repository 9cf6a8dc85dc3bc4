#pragma once
#include <cstdint>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// Floating-point operations, by the ops' own costs.
struct Operations {
  double all = 0;
  double model = 0;  // without what is recomputed, which `mfu` does not count
};

// Of one step, of all ranks that take rows.
Operations operations_of_step(const Compiled& compiled);

// Steps as a share of the greatest speed that was seen: of large products and, where other programs had the cores while
// those were measured, of the steps themselves. So it is never above 1.
class Utilisation {
 public:
  // Operations per second of a large product: the greatest of several counts.
  void measured(double speed);
  // Of a step at this speed, 0 where nothing was measured. One that is faster than all before is the measure from then
  // on.
  double of(double speed);

  double peak() const { return peak_; }
  // Of large products alone, the last count of them included.
  double product() const { return product_; }
  // Whether a step was faster than every large product.
  bool outrun() const { return outrun_; }
  // What to say of the step at `speed` that was the first.
  std::string outrun_text(std::int64_t step, double speed) const;

 private:
  double peak_ = 0;
  double product_ = 0;
  bool outrun_ = false;
};

// Operations per second of large products in the precision of the run, on all that its ranks compute with. Where ranks
// are processes (`world`, of which `local_ranks` are on this machine) each measures its own threads, and all must call
// it.
double product_speed(const Config& config, const Compiled& compiled, int threads, comm::Communicator* world = nullptr,
                     int local_ranks = 0);

}  // namespace trireme::train
