#include "trireme/cluster/cluster.h"

#include "fuzz/targets.h"

namespace trireme::fuzz {

void cluster(Input input) {
  const cluster::Cluster read = cluster::parse_cluster(text_of(input), "fuzz.toml");
  const std::string written = cluster::to_toml(read);
  fail_if(cluster::to_toml(cluster::parse_cluster(written, "again.toml")) != written,
          "a cluster does not survive being written and read");
  cluster::summary(read);
}

}  // namespace trireme::fuzz
