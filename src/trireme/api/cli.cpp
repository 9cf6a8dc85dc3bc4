#include "trireme/cli/cli.h"

#include <trireme/cli.h>

#include "trireme/api/access.h"

namespace trireme {

int cli_main(int argc, char** argv, const Registry& registry) {
  return cli::cli_main(argc, argv, Access::unwrap(registry));
}

}  // namespace trireme
