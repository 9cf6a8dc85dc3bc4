#include "trireme/cli/cli.h"
#include "trireme/ops/all.h"

int main(int argc, char** argv) {
  const trireme::ir::Registry registry = trireme::ops::builtin();
  return trireme::cli::cli_main(argc, argv, registry);
}
