#pragma once
#include <trireme/export.h>
#include <trireme/registry.h>

namespace trireme {

// The whole `trireme` program, with the registry's models: `model.family` names one of them. Prints, handles SIGINT,
// SIGTERM and SIGUSR1 while it trains, and gives the exit code; it never throws.
//
//   int main(int argc, char** argv) { return trireme::cli_main(argc, argv, my_registry()); }
TRIREME_API int cli_main(int argc, char** argv, const Registry& registry = {});

}  // namespace trireme
