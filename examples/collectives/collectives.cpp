// Two workers agree on a sum, and on a list. The same program runs them as threads or, under mpirun, as processes.
#include <trireme/comm.h>
#include <trireme/error.h>

#include <iostream>
#include <sstream>
#include <vector>

namespace tri = trireme;

namespace {

std::string text(const std::vector<float>& values) {
  std::ostringstream out;
  out << '[';
  for (std::size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "" : ", ") << values[i];
  out << ']';
  return out.str();
}

void expect(const std::vector<float>& got, const std::vector<float>& want) {
  if (got != want) throw tri::Error(tri::Error::Kind::failure, "got " + text(got) + ", not " + text(want));
}

void worker(tri::Communicator& comm) {
  const bool first = comm.rank() == 0;

  const std::vector<float> a = first ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
  const std::vector<float> sum = comm.all_reduce(a, tri::ReduceOp::sum);
  expect(sum, {2, 2, 4});

  const std::vector<float> b = first ? std::vector<float>{1, 2} : std::vector<float>{3, 4};
  const std::vector<float> all = comm.all_gather(b);
  expect(all, {1, 2, 3, 4});

  // One line at a time, in order.
  for (int r = 0; r < comm.size(); ++r) {
    comm.barrier();
    if (r == comm.rank())
      std::cout << "worker " << r << ": all-reduce of " << text(a) << " is " << text(sum) << ", all-gather of "
                << text(b) << " is " << text(all) << std::endl;
  }

  // The same sum by other means, and what it cost.
  for (const char* algorithm : {"sequential", "parallel", "ring", "recursive", "tree"}) {
    const tri::Traffic before = comm.traffic();
    expect(comm.all_reduce(a, tri::ReduceOp::sum, algorithm), {2, 2, 4});
    const tri::Traffic after = comm.traffic();
    if (first)
      std::cout << "  " << algorithm << ": " << after.steps - before.steps << " steps, "
                << after.sent_bytes - before.sent_bytes << " bytes sent" << std::endl;
  }
}

}  // namespace

int main() {
  try {
    tri::run_ranks(2, [](tri::Communicator& comm) {
      if (comm.size() != 2) throw tri::Error(tri::Error::Kind::request, "two workers, please: mpirun -n 2 collectives");
      worker(comm);
    });
  } catch (const tri::Error& e) {
    std::cerr << "error: " << e.message() << '\n';
    return e.kind() == tri::Error::Kind::request ? 2 : 1;
  }
  return 0;
}
