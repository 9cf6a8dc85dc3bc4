#include <trireme/cli.h>

int main(int argc, char** argv) { return trireme::cli_main(argc, argv); }
