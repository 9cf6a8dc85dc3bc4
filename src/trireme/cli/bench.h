#pragma once
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// The subcommands of `trireme bench` that have a file of their own.
void add_bench_checkpoint(CLI::App& bench, Context& context);
void add_bench_comm(CLI::App& bench, Context& context);
void add_bench_gemm(CLI::App& bench, Context& context);
void add_bench_generate(CLI::App& bench, Context& context);
void add_bench_offload(CLI::App& bench, Context& context);
void add_bench_ranks(CLI::App& bench, Context& context);
void add_bench_reduce(CLI::App& bench, Context& context);

double median(std::vector<double> values);

}  // namespace trireme::cli
