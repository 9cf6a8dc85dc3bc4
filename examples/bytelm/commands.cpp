#include "byte_lm.h"

int main(int argc, char** argv) { return tri::cli_main(argc, argv, registry_with_byte_lm()); }
